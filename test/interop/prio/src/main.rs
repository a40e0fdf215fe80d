//! Writes Prio3 test vectors made by libprio-rs, in the format of VDAF-18 appendix C, for vdaf/prio3/testdata; and
//! verifies, with libprio-rs, reports that Starling sharded.
//!
//! libprio-rs draws its own randomness, so there is no "shard" operation: each file says how every report it sharded is
//! to verify, and one report of each type is corrupted and must be refused where libprio-rs refuses it.

use prio::codec::{Encode, ParameterizedDecode};
use prio::field::Field64;
use prio::flp::gadgets::{Mul, ParallelSum};
use prio::flp::types::SumVec;
use prio::vdaf::prio3::Prio3;
use prio::vdaf::xof::XofTurboShake128;
use prio::vdaf::{Aggregator, Client, Collector, Vdaf, VerifyTransition};
use serde_json::{json, Map, Value};
use std::{env, fs, path::PathBuf};

const CTX: &[u8] = b"starling interop";

type Multiproof = Prio3<SumVec<Field64, ParallelSum<Field64, Mul>>, XofTurboShake128, 32>;

/// The `i`-th nonce, and (with i = 255) the verification key: public values, any will do.
fn bytes<const N: usize>(i: u8) -> [u8; N] {
    core::array::from_fn(|j| (j as u8).wrapping_mul(7) ^ i)
}

fn enc<E: Encode>(e: &E) -> Vec<u8> {
    e.get_encoded().expect("encode")
}

fn op(name: &str, agg: Option<usize>, report: Option<usize>, round: Option<usize>, success: bool) -> Value {
    let mut o = Map::new();
    o.insert("operation".into(), name.into());
    if let Some(a) = agg {
        o.insert("aggregator_id".into(), a.into());
    }
    if let Some(r) = report {
        o.insert("report_index".into(), r.into());
    }
    if let Some(r) = round {
        o.insert("round".into(), r.into());
    }
    o.insert("success".into(), success.into());
    o.into()
}

/// Everything one file says. `corrupt` names a byte of the leader's input share to change before verification.
fn vector<V>(vdaf: &V, params: Value, measurements: &[(V::Measurement, Value)], corrupt: Option<usize>) -> Value
where
    V: Client<16> + Collector + Aggregator<32, 16> + Vdaf<AggregationParam = ()>,
    V::AggregateResult: serde::Serialize,
{
    let key = bytes::<32>(255);
    let shares = vdaf.num_aggregators();
    let (mut ops, mut reports) = (vec![], vec![]);
    let mut outs = vec![vec![]; shares];
    for (i, (m, as_json)) in measurements.iter().enumerate() {
        let nonce = bytes::<16>(i as u8);
        let (public, inputs) = vdaf.shard(CTX, m, &nonce).expect("shard");
        let public_bytes = enc(&public);
        let mut input_bytes: Vec<_> = inputs.iter().map(enc).collect();
        if let Some(at) = corrupt {
            input_bytes[0][at] ^= 1;
        }
        let (mut states, mut verifier_shares, mut encoded) = (vec![], vec![], vec![]);
        for (j, b) in input_bytes.iter().enumerate() {
            let input = V::InputShare::get_decoded_with_param(&(vdaf, j), b).expect("input share");
            let (st, sh) = vdaf.verify_init(&key, CTX, j, &(), &nonce, &public, &input).expect("verify_init");
            ops.push(op("verify_init", Some(j), Some(i), None, true));
            encoded.push(hex::encode(enc(&sh)));
            states.push(st);
            verifier_shares.push(sh);
        }
        let message = vdaf.verifier_shares_to_message(CTX, &(), verifier_shares);
        ops.push(op("verifier_shares_to_message", None, Some(i), Some(0), message.is_ok()));
        assert_eq!(message.is_ok(), corrupt.is_none(), "corrupted reports are refused, others not");
        let (mut messages, mut out_shares) = (vec![], vec![]);
        if let Ok(message) = message {
            messages.push(hex::encode(enc(&message)));
            for (j, st) in states.into_iter().enumerate() {
                let VerifyTransition::Finish(out) = vdaf.verify_next(CTX, st, message.clone()).expect("verify_next")
                else {
                    panic!("Prio3 has one round");
                };
                ops.push(op("verify_next", Some(j), Some(i), Some(1), true));
                out_shares.push(hex::encode(enc(&out)));
                outs[j].push(out);
            }
        }
        reports.push(json!({
            "measurement": as_json, "nonce": hex::encode(nonce), "rand": "",
            "public_share": hex::encode(public_bytes),
            "input_shares": input_bytes.iter().map(hex::encode).collect::<Vec<_>>(),
            "verifier_shares": [encoded], "verifier_messages": messages, "out_shares": out_shares,
        }));
    }
    let (mut agg_shares, mut result) = (vec![], Value::Null);
    if corrupt.is_none() {
        let aggs: Vec<_> = outs.into_iter().map(|o| vdaf.aggregate(&(), o).expect("aggregate")).collect();
        for (j, a) in aggs.iter().enumerate() {
            agg_shares.push(hex::encode(enc(a)));
            ops.push(op("aggregate", Some(j), None, None, true));
        }
        let r = vdaf.unshard(&(), aggs, measurements.len()).expect("unshard");
        result = serde_json::to_value(r).expect("result");
        ops.push(op("unshard", None, None, None, true));
    }
    let mut v = json!({
        "operations": ops, "shares": shares, "verify_key": hex::encode(key), "agg_param": "", "ctx": hex::encode(CTX),
        "reports": reports, "agg_shares": agg_shares, "agg_result": result,
    });
    v.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    v
}

/// Verifies what another implementation sharded: every report of a file, and then that the sum is the file's. Returns
/// false where a report is refused, which must then be so for all of them.
fn verify<V>(vdaf: &V, file: &Value) -> bool
where
    V: Client<16> + Collector + Aggregator<32, 16> + Vdaf<AggregationParam = ()>,
    V::AggregateResult: serde::Serialize,
{
    let unhex = |v: &Value| hex::decode(v.as_str().expect("hexadecimal")).expect("hexadecimal");
    let key: [u8; 32] = unhex(&file["verify_key"]).try_into().expect("verify_key");
    let ctx = unhex(&file["ctx"]);
    let reports = file["reports"].as_array().expect("reports");
    let mut outs = vec![vec![]; vdaf.num_aggregators()];
    let mut refused = 0;
    for report in reports {
        let nonce: [u8; 16] = unhex(&report["nonce"]).try_into().expect("nonce");
        let public = V::PublicShare::get_decoded_with_param(vdaf, &unhex(&report["public_share"])).expect("public");
        let (mut states, mut verifier_shares) = (vec![], vec![]);
        for (j, input) in report["input_shares"].as_array().expect("input_shares").iter().enumerate() {
            let input = V::InputShare::get_decoded_with_param(&(vdaf, j), &unhex(input)).expect("input share");
            let (st, sh) = vdaf.verify_init(&key, &ctx, j, &(), &nonce, &public, &input).expect("verify_init");
            states.push(st);
            verifier_shares.push(sh);
        }
        let Ok(message) = vdaf.verifier_shares_to_message(&ctx, &(), verifier_shares) else {
            refused += 1;
            continue;
        };
        for (j, st) in states.into_iter().enumerate() {
            match vdaf.verify_next(&ctx, st, message.clone()).expect("verify_next") {
                VerifyTransition::Finish(out) => outs[j].push(out),
                _ => panic!("Prio3 has one round"),
            }
        }
    }
    assert!(refused == 0 || refused == reports.len(), "some reports are refused, others not");
    if refused > 0 {
        return false;
    }
    let shares: Vec<_> = outs.into_iter().map(|o| vdaf.aggregate(&(), o).expect("aggregate")).collect();
    let sum = vdaf.unshard(&(), shares, reports.len()).expect("unshard");
    assert_eq!(serde_json::to_value(sum).expect("result"), file["agg_result"], "the sum");
    true
}

/// Verifies one file; its name's first part is its type.
fn verify_file(name: &str, file: &Value) -> bool {
    let number = |key: &str| file[key].as_u64().unwrap_or_else(|| panic!("{name} has no {key}"));
    let size = |key: &str| number(key) as usize;
    let shares = number("shares") as u8;
    match name.split('_').next() {
        Some("Prio3Count") => verify(&Prio3::new_count(shares).unwrap(), file),
        Some("Prio3Sum") => verify(&Prio3::new_sum(shares, number("max_measurement")).unwrap(), file),
        Some("Prio3SumVec") => {
            let max = number("max_measurement").into();
            verify(&Prio3::new_sum_vec(shares, max, size("length"), size("chunk_length")).unwrap(), file)
        }
        Some("Prio3SumVecWithMultiproof") => {
            let typ = SumVec::new(number("max_measurement"), size("length"), size("chunk_length")).unwrap();
            let v: Multiproof = Prio3::new(shares, number("proofs") as u8, 0xFFFFFFFF, typ).unwrap();
            verify(&v, file)
        }
        Some("Prio3Histogram") => {
            verify(&Prio3::new_histogram(shares, size("length"), size("chunk_length")).unwrap(), file)
        }
        Some("Prio3MultihotCountVec") => {
            let (length, weight, chunk) = (size("length"), size("max_weight"), size("chunk_length"));
            verify(&Prio3::new_multihot_count_vec(shares, length, weight, chunk).unwrap(), file)
        }
        _ => panic!("{name} is of no known type"),
    }
}

/// Measurements beside their JSON.
fn with_json<M: serde::Serialize + Clone>(ms: &[M]) -> Vec<(M, Value)> {
    ms.iter().map(|m| (m.clone(), serde_json::to_value(m).unwrap())).collect()
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir] => write_all(PathBuf::from(dir)),
        ["verify", dir] => verify_all(PathBuf::from(dir)),
        _ => panic!("usage: starling-interop-prio write|verify <folder>"),
    }
}

fn verify_all(dir: PathBuf) {
    let (mut verified, mut refused) = (0, 0);
    for entry in fs::read_dir(dir).expect("folder") {
        let path = entry.expect("folder").path();
        let file: Value = serde_json::from_slice(&fs::read(&path).expect("file")).expect("JSON");
        match verify_file(path.file_stem().and_then(|s| s.to_str()).expect("name"), &file) {
            true => verified += 1,
            false => refused += 1,
        }
    }
    println!("{verified} files verified, {refused} refused");
}

fn write_all(dir: PathBuf) {
    fs::create_dir_all(&dir).expect("folder");
    let write = |name: &str, v: Value| {
        fs::write(dir.join(name.to_string() + ".json"), serde_json::to_string_pretty(&v).unwrap() + "\n").expect("file")
    };

    for shares in [2, 3] {
        let v = Prio3::new_count(shares).unwrap();
        write(&format!("Prio3Count_{shares}"), vector(&v, json!({}), &with_json(&[true, false, true]), None));
    }
    write("Prio3Count_bad", vector(&Prio3::new_count(2).unwrap(), json!({}), &with_json(&[true]), Some(0)));

    for (i, max) in [1u64, 255, 1337, (1 << 32) - 1].into_iter().enumerate() {
        let v = Prio3::new_sum(2, max).unwrap();
        let ms = with_json(&[0, max, max / 2]);
        write(&format!("Prio3Sum_{i}"), vector(&v, json!({"max_measurement": max}), &ms, None));
    }
    let v = Prio3::new_sum(2, 100).unwrap();
    write("Prio3Sum_bad", vector(&v, json!({"max_measurement": 100}), &with_json(&[42u64]), Some(8)));

    let p = json!({"max_measurement": 7, "length": 5, "chunk_length": 4});
    let v = Prio3::new_sum_vec(2, 7, 5, 4).unwrap();
    write("Prio3SumVec_0", vector(&v, p.clone(), &with_json(&[vec![0u128, 7, 3, 4, 5], vec![1; 5]]), None));
    write("Prio3SumVec_bad", vector(&v, p, &with_json(&[vec![7u128; 5]]), Some(16)));
    // One chunk, longer than the measurement.
    let p = json!({"max_measurement": 5, "length": 2, "chunk_length": 9});
    let v = Prio3::new_sum_vec(3, 5, 2, 9).unwrap();
    write("Prio3SumVec_1", vector(&v, p, &with_json(&[vec![5u128, 3]]), None));

    let p = json!({"max_measurement": 10, "length": 4, "chunk_length": 3, "proofs": 4});
    let v: Multiproof = Prio3::new(2, 4, 0xFFFFFFFF, SumVec::new(10, 4, 3).unwrap()).unwrap();
    write("Prio3SumVecWithMultiproof_0", vector(&v, p.clone(), &with_json(&[vec![0u64, 10, 5, 1]]), None));
    write("Prio3SumVecWithMultiproof_bad", vector(&v, p, &with_json(&[vec![0u64, 10, 5, 1]]), Some(0)));

    let p = json!({"length": 20, "chunk_length": 4});
    let v = Prio3::new_histogram(2, 20, 4).unwrap();
    write("Prio3Histogram_0", vector(&v, p.clone(), &with_json(&[0usize, 19, 7]), None));
    write("Prio3Histogram_bad", vector(&v, p, &with_json(&[3usize]), Some(16)));
    let v = Prio3::new_histogram(2, 1, 1).unwrap();
    write("Prio3Histogram_1", vector(&v, json!({"length": 1, "chunk_length": 1}), &with_json(&[0usize]), None));

    let p = json!({"length": 6, "max_weight": 3, "chunk_length": 3});
    let v = Prio3::new_multihot_count_vec(2, 6, 3, 3).unwrap();
    let ms = with_json(&[vec![true, false, false, true, true, false], vec![false; 6]]);
    write("Prio3MultihotCountVec_0", vector(&v, p.clone(), &ms, None));
    write("Prio3MultihotCountVec_bad", vector(&v, p, &ms[..1], Some(96)));
}
