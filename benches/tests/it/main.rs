//! Runs the programs of this package briefly. Their results are not evaluated.

#![cfg(test)]

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Lock for tests that run a program: two cores are too slow for two at once.
static MACHINE: Mutex<()> = Mutex::new(());

/// Returns stack, case and metric of each printed row, with the value.
fn values(arguments: &[&str]) -> Vec<(String, f64)> {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut program = Command::new(env!("CARGO_BIN_EXE_peers-relay"));
    let output = program.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| {
        let (names, value) = line.rsplit_once(r#","value":"#).unwrap();
        let value: f64 = value.trim_end_matches('}').parse().unwrap();
        assert!(value.is_finite(), "{line}");
        let names = names.trim_start_matches('{').replace('"', "");
        let names = names.split(',').filter_map(|name| name.split_once(':'));
        let names = names.map(|(_, name)| name).collect::<Vec<_>>().join(" ");
        (names, value)
    });
    lines.collect()
}

#[test]
fn a_short_run_gives_every_row_of_a_relay() {
    let found = values(&["1", "640", "40"]);
    let found: Vec<String> = found.into_iter().map(|(names, _)| names).collect();
    let has = |stack: &str, case: &str, metrics: &[&str]| {
        for metric in metrics {
            let row = format!("{stack} {case} {metric}");
            assert!(found.contains(&row), "{row}: {found:?}");
        }
        metrics.len()
    };
    let mut count = 0;
    let packets = [
        "cpu_ns_per_packet",
        "allocations_per_packet",
        "delivered_share",
    ];
    for case in [
        "sealed100",
        "sealed1200",
        "hop100",
        "hop1200",
        "trunk100",
        "trunk1200",
        "packed100",
    ] {
        for stack in ["plain", "mmsg", "tickwire"] {
            count += has(stack, case, &packets);
        }
    }
    for case in ["sealed100", "sealed1200", "hop100", "hop1200"] {
        count += has("tickwire", &format!("spread_{case}"), &packets);
    }
    let latency = ["latency_us_p50", "latency_us_p99", "latency_us_p99.9"];
    for stack in ["plain", "tickwire"] {
        for case in ["paced_sealed100", "paced_hop100"] {
            count += has(stack, case, &["cpu_ns_per_pass"]) + has(stack, case, &latency);
        }
        let metrics = [
            "cpu_ns_per_packet",
            "delivered_share",
            "core_share",
            "threads",
        ];
        count += has(stack, "clients1000", &metrics);
    }
    count += has("plain", "sealed100", &["threads"]) + has("mmsg", "sealed100", &["threads"]);
    count += has("tickwire", "flows", &["bytes_per_label", "threads"]);
    let routes = [
        "routes_n1000/ms",
        "alternatives_n1000/ms",
        "all_pairs_n1000/ms",
        "link_change_n1000/ms",
    ];
    count += has("tickwire", "routes", &routes);
    assert_eq!(found.len(), count);
}

#[test]
fn mesh_f3_a_relay_on_real_sockets_forwards_bursts_and_trunks() {
    let found = values(&["1", "640", "40", "trunk"]);
    for case in ["trunk100", "trunk1200", "packed100"] {
        let row = format!("tickwire {case} delivered_share");
        let share = found.iter().find(|(names, _)| *names == row);
        let (_, share) = share.unwrap();
        assert!(*share > 0.5, "{case}: {share}");
    }
}
