# The command line on a CPU: docker build -t levelfield . && docker run --rm -it -v "$PWD":/here levelfield demo
# Untested: no daemon was at hand where this was written. For a GPU, start from an image with CUDA and torch's own wheels.
FROM python:3.12-slim

WORKDIR /package
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY .ci/long_description.py .ci/
COPY levelfield levelfield
RUN pip install --no-cache-dir -c constraints.txt .

WORKDIR /here
ENTRYPOINT ["levelfield"]
CMD ["--help"]
