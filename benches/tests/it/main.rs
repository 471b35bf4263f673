//! Programs of this package, run for a moment: what they find is not judged.

#![cfg(test)]

use std::process::Command;

/// Stack, case and metric of each row that a run prints.
fn rows(arguments: &[&str]) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_peers-relay"));
    let output = program.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| {
        let (names, value) = line.rsplit_once(r#","value":"#).unwrap();
        let value: f64 = value.trim_end_matches('}').parse().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let names = names.trim_start_matches('{').replace('"', "");
        let values = names.split(',').filter_map(|name| name.split_once(':'));
        values.map(|(_, value)| value).collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

#[test]
fn a_short_run_gives_every_row_of_a_relay() {
    let found = rows(&["1", "640", "40"]);
    for stack in ["plain", "mmsg", "tickwire"] {
        for case in ["sealed100", "sealed1200"] {
            for metric in [
                "cpu_ns_per_packet",
                "allocations_per_packet",
                "delivered_share",
            ] {
                let row = format!("{stack} {case} {metric}");
                assert!(found.contains(&row), "{row}: {found:?}");
            }
        }
        let row = format!("{stack} sealed100 threads");
        assert!(found.contains(&row), "{row}: {found:?}");
    }
    for row in [
        "sealed100 bytes_per_label",
        "routes routes_n1000/ms",
        "routes alternatives_n1000/ms",
        "routes all_pairs_n1000/ms",
        "routes link_change_n1000/ms",
    ] {
        let row = format!("tickwire {row}");
        assert!(found.contains(&row), "{row}: {found:?}");
    }
    assert_eq!(found.len(), 3 * (2 * 3 + 1) + 5);
}
