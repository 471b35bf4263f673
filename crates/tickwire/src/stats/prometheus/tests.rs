use std::collections::BTreeSet;

use servicer::Counters;
use udp_proto::{EndpointStats, SessionStats};

use super::*;
use crate::stats::Traffic;

fn report() -> Report {
    let mut endpoint = EndpointStats::default();
    endpoint.packets = 12;
    endpoint.dropped_forged = 3;
    let mut stats = SessionStats::default();
    stats.packets_lost = 4;
    stats.rtt = core::time::Duration::from_micros(2_050_007);
    let session = |name: &str| SessionReport {
        session: name.to_owned(),
        stats,
        queueing_us: 9,
        series: Vec::new(),
    };
    Report {
        uptime_ms: 1_002,
        endpoint,
        traffic: Traffic {
            rtt_us: 30_000,
            ..Traffic::default()
        },
        session: vec![session("0.1"), session("4.2")],
        ..Report::default()
    }
}

#[test]
fn u18_prometheus_text_has_each_metric_once_and_its_values_together() {
    let text = text(&report());
    for line in [
        "tickwire_uptime_seconds 1.002",
        "tickwire_endpoint_packets_total 12",
        "tickwire_endpoint_dropped_total{reason=\"forged\"} 3",
        "tickwire_rtt_seconds 0.030000",
        "tickwire_tick_seconds_total{part=\"game\"} 0.000000",
        "tickwire_session_packets_lost_total{session=\"4.2\"} 4",
        "tickwire_session_rtt_seconds{session=\"0.1\"} 2.050007",
        "tickwire_session_queueing_seconds{session=\"0.1\"} 0.000009",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    let mut known = BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert!(known.insert(name), "{name} comes twice");
            assert!(["counter", "gauge"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            current = name;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(series.split('{').next(), Some(current), "{line}");
            value.parse::<f64>().unwrap();
        }
    }
}

/// The names that a derived `Debug` tells.
fn names(debug: &str) -> Vec<String> {
    let words = debug.split(['{', ' ', ',', '}']);
    let fields = words.filter_map(|word| word.strip_suffix(':'));
    fields.map(str::to_owned).collect()
}

#[test]
fn u18_no_counter_is_left_out_of_the_text_or_of_json() {
    let report = report();
    let (text, json) = (text(&report), report.to_json());
    let of = [
        ("endpoint", format!("{:?}", EndpointStats::default())),
        ("driver", format!("{:?}", Counters::default())),
        ("session", format!("{:?}", SessionStats::default())),
    ];
    for (part, debug) in of {
        let names = names(&debug);
        assert!(names.len() > 10, "{debug}");
        for name in names {
            let metric = match name.strip_prefix(DROPPED) {
                Some(reason) if part != "session" => {
                    format!("tickwire_{part}_dropped_total{{reason=\"{reason}\"}} ")
                }
                _ if name.starts_with("rtt") => format!("tickwire_session_{name}_seconds{{"),
                _ if part == "session" => format!("tickwire_session_{name}_total{{"),
                _ => format!("tickwire_{part}_{name}_total "),
            };
            assert!(text.contains(&metric), "{metric}");
            assert!(json.contains(&format!("\"{name}")), "{name}");
        }
    }
}

#[test]
fn a_report_of_nobody_has_no_metric_of_sessions() {
    assert!(!text(&Report::default()).contains("tickwire_session_"));
}
