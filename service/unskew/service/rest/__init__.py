"""The verbs over HTTP: the REST paths, their JSON models, and the web page. Begin with ``app``."""
