"""The former place of `coalloc.client.futures.call_runner`, named by jobs of the version before."""

import runpy

if __name__ == "__main__":
    runpy.run_module("coalloc.client.futures.call_runner", run_name="__main__", alter_sys=True)
