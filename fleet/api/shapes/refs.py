"""What is only named where it stands beside something else."""

from rest_framework import serializers

from fleet.api.shapes.derive import shape
from fleet.domain.sets import KINDS
from fleet.projections.refs import SetRef

SetRefShape = shape(SetRef, kind=serializers.ChoiceField(KINDS))
