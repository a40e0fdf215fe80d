"""Checks what `starling lab --json` printed: every report counted, every bucket within 6 standard errors of the truth, and with a
population (--population N [needles]) coins that came out as they should, and an error as forecast."""
import json
import os
import sys

report = json.load(open(sys.argv[1]))
out = sys.argv[2]
option = sys.argv[3:5] or ["--malicious", "0"]
malicious = int(option[1]) if option[0] == "--malicious" else 0
population = int(option[1]) if option[0] == "--population" else 0
needles = sys.argv[5:] == ["needles"]


def want(ok, what):
    if not ok:
        sys.exit(f"lab: {what}\n{json.dumps(report)[:4000]}")


rejected = sum(report["reports_rejected"].values())
want(rejected == malicious, "reports_rejected")
if population:
    sampling, dummies, sent = report["sampling"], report["dummies"], report["reports_sent"]
    want(report["population"] == report["decisions"] == population and 0 < sampling < 1, "population")
    want(sent == report["reports_accepted"] == report["answers"] + dummies and dummies > 0, "reports_accepted")
    want(report["no_ops"] == (population - sent if needles else 0), "no_ops")
    if not needles:
        deviation = (population * sampling * (1 - sampling)) ** 0.5
        want(abs(report["answers"] - population * sampling) < 6 * deviation, "the coins are not fair")
        want(sum(report["truth"]) == population, "truth")
    want(report["epsilon_if_relay_colludes"] > report["epsilon"], "epsilon_if_relay_colludes")
    want(report["epsilon_if_edge_watched"] == (report["epsilon"] if needles else report["epsilon_if_relay_colludes"]), "edge")
    want(0 < report["squared_error"] < 10 * report["squared_error_forecast"], "squared_error")
else:
    want(report["reports_sent"] == 20190 + malicious, "reports_sent")
    want(report["reports_accepted"] == 20190, "reports_accepted")
    want(report["unit"] == "person-year" and report["units_per_person"] == 5, "unit: a row is a person in one year of up to five")
    want(report["person"]["epsilon"] > 4 * report["epsilon"] and report["person"]["delta"] == report["delta"], "person")
    want(sum(report["truth"]) == 20190 and len(report["truth"]) == 21, "truth")
for estimate, truth, stderr in zip(report["estimate"], report["truth"], report["stderr"], strict=True):
    want(0 < stderr < 1000 and abs(estimate - truth) <= 6 * stderr, "a bucket is more than 6 standard errors off")
want(report["estimate"] != report["truth"], "the estimate carries no noise")
want(0 < report["epsilon"] < 10 and 0 < report["delta"] < 1e-5, "guarantee")
want(report["seconds_total"] < 60, "took longer than a minute")
for name, magic in (("starling-lab.png", b"\x89PNG"), ("starling-lab.csv", b"bucket")):
    want(open(os.path.join(out, name), "rb").read().startswith(magic), name)
print(f"lab: {report['reports_sent']} reports in {report['seconds_total']:.1f} s, {rejected} rejected, epsilon {report['epsilon']:.4f}")
