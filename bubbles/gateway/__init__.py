"""The long-running form: what lies between channels and turns. Nothing that was taken is lost or done twice."""
