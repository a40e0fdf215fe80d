"""An app that tries to get a site's secret out of it."""
