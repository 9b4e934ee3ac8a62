"""Views, forms and template tags of the dashboard."""
