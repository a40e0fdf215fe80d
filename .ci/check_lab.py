"""Checks what `starling lab --json` printed: every report counted, every bucket within 6 standard errors of the truth."""
import json
import os
import sys

report = json.load(open(sys.argv[1]))
out = sys.argv[2]
malicious = int(sys.argv[4]) if len(sys.argv) > 3 else 0


def want(ok, what):
    if not ok:
        sys.exit(f"lab: {what}\n{json.dumps(report)[:4000]}")


rejected = sum(report["reports_rejected"].values())
want(report["reports_sent"] == 20190 + malicious, "reports_sent")
want(report["reports_accepted"] == 20190, "reports_accepted")
want(rejected == malicious, "reports_rejected")
want(sum(report["truth"]) == 20190 and len(report["truth"]) == 21, "truth")
for estimate, truth, stderr in zip(report["estimate"], report["truth"], report["stderr"], strict=True):
    want(0 < stderr < 1000 and abs(estimate - truth) <= 6 * stderr, "a bucket is more than 6 standard errors off")
want(report["estimate"] != report["truth"], "the estimate carries no noise")
want(0 < report["epsilon"] < 10 and 0 < report["delta"] < 1e-5, "guarantee")
want(report["seconds_total"] < 60, "took longer than a minute")
for name, magic in (("starling-lab.png", b"\x89PNG"), ("starling-lab.csv", b"bucket")):
    want(open(os.path.join(out, name), "rb").read().startswith(magic), name)
print(f"lab: {report['reports_sent']} reports in {report['seconds_total']:.1f} s, {rejected} rejected, epsilon {report['epsilon']:.4f}")
