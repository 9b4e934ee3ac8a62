# Two images: `backend` (the last stage, so the default) for web, worker, beat and the pretend Azure; `agent` for a machine.

FROM python:3.13-slim AS tools
WORKDIR /app
COPY requirements/uv.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/uv.txt && python -m venv --without-pip /venv

# One version for both images: without Git it is a digest of all sources.
FROM tools AS version
COPY . .
RUN python requirements/version.py > VERSION

FROM tools AS build-agent
COPY requirements/agent.txt requirements/
RUN uv pip sync --python /venv/bin/python --no-cache --require-hashes requirements/agent.txt
COPY requirements/version.py requirements/
COPY --from=version /app/VERSION ./
COPY agents/LICENSE agents/README.md agents/pyproject.toml agents/
COPY agents/drydock_agent agents/drydock_agent
RUN uv pip install --python /venv/bin/python --no-cache --no-deps --no-build-isolation ./agents

FROM tools AS build-docs
COPY requirements/docs.txt requirements/
RUN uv pip sync --python /venv/bin/python --no-cache --require-hashes requirements/docs.txt
COPY CHANGELOG.md mkdocs.yml ./
COPY fleet/management/site_hooks.py fleet/management/
COPY docs docs
RUN /venv/bin/mkdocs build --quiet --strict

FROM tools AS build-backend
COPY requirements/base.txt requirements/
RUN uv pip sync --python /venv/bin/python --no-cache --require-hashes requirements/base.txt
COPY requirements/version.py requirements/
COPY --from=version /app/VERSION ./
COPY LICENSE README.md pyproject.toml ./
COPY agents agents
COPY fleet fleet
COPY templates templates
COPY --from=build-docs /app/fleet/site fleet/site
RUN uv pip install --python /venv/bin/python --no-cache --no-deps --no-build-isolation --compile-bytecode . ./agents
ENV STATIC_ROOT=/app/staticfiles
RUN /venv/bin/drydock-fleet collectstatic --noinput

FROM python:3.13-slim AS agent
RUN useradd --system --uid 10001 --no-create-home drydock && install -d -o drydock /var/lib/drydock-agent
COPY --from=build-agent /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER drydock
VOLUME /var/lib/drydock-agent
CMD ["drydock-agent", "run"]

FROM python:3.13-slim AS backend
RUN useradd --system --uid 10001 --no-create-home drydock
COPY --from=build-backend /venv /venv
COPY --from=build-backend /app/staticfiles /app/staticfiles
# The pretended Azure is no part of what is installed; only the profile `demo` runs it.
COPY --from=build-backend /app/agents/azure_simulator /app/agents/azure_simulator
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 STATIC_ROOT=/app/staticfiles
USER drydock
EXPOSE 8000
CMD ["drydock-fleet", "web", "--host", "0.0.0.0", "--port", "8000"]
