"""The published mixed-integer programs, built with PuLP and solved by HiGHS or CBC."""
