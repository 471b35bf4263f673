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

/// The field names in a derived `Debug` output.
fn names(debug: &str) -> Vec<String> {
    let words = debug.split(['{', ' ', ',', '}']);
    let fields = words.filter_map(|word| word.strip_suffix(':'));
    fields.map(str::to_owned).collect()
}

#[test]
fn u18_the_text_and_json_have_every_counter() {
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
                _ if name == "bytes_in_flight" => "tickwire_session_in_flight_bytes{".to_owned(),
                _ if ["congestion_window", "mtu", "realtime_rate"].contains(&name.as_str()) => {
                    format!("tickwire_session_{name}_bytes")
                }
                _ if part == "session" => format!("tickwire_session_{name}_total{{"),
                _ => format!("tickwire_{part}_{name}_total "),
            };
            assert!(text.contains(&metric), "{metric}");
            assert!(json.contains(&format!("\"{name}")), "{name}");
        }
    }
}

#[test]
fn a_report_without_sessions_has_no_session_metric() {
    assert!(!text(&Report::default()).contains("tickwire_session_"));
}

/// The names of the metrics of `kind` in `text`.
fn of_kind(text: &str, kind: &str) -> BTreeSet<String> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let kinds = heads.filter_map(|head| head.split_once(' '));
    kinds
        .filter(|(_, of)| *of == kind)
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Each field is classified by hand: a new field is in neither list until somebody decides whether
/// its value can fall.
#[test]
fn u18_falling_values_are_gauges_and_growing_ones_counters() {
    let text = text(&report());
    let gauges = [
        "tickwire_queueing_seconds",
        "tickwire_rtt_seconds",
        "tickwire_session_congestion_window_bytes",
        "tickwire_session_in_flight_bytes",
        "tickwire_session_mtu_bytes",
        "tickwire_session_queueing_seconds",
        "tickwire_session_realtime_rate_bytes_per_second",
        "tickwire_session_rtt_min_seconds",
        "tickwire_session_rtt_seconds",
        "tickwire_session_rtt_variation_seconds",
        "tickwire_sessions",
        "tickwire_uptime_seconds",
    ];
    assert!(of_kind(&text, "gauge").iter().eq(&gauges), "{text}");
    let counters: BTreeSet<String> = of_kind(&text, "counter")
        .iter()
        .filter_map(|name| name.strip_prefix("tickwire_session_"))
        .map(|name| name.trim_end_matches("_total").to_owned())
        .collect();
    let expected = [
        "address_changes",
        "bytes_received",
        "bytes_sent",
        "key_phase_received",
        "key_phase_sent",
        "message_frames_lost",
        "message_frames_overtaken",
        "message_frames_repeated",
        "messages_displaced",
        "messages_dropped_incomplete",
        "messages_dropped_unread",
        "messages_expired",
        "messages_received",
        "messages_sent",
        "packets_acknowledged",
        "packets_lost",
        "packets_lost_spuriously",
        "packets_over_limit",
        "packets_received",
        "packets_sent",
        "packets_unopened",
    ];
    assert!(counters.iter().eq(&expected), "{counters:?}");
}

#[test]
fn u18_no_counter_falls_while_a_session_is_busy_or_idle() {
    let local = core::net::SocketAddr::from((core::net::Ipv4Addr::LOCALHOST, 0));
    let mut server = crate::Server::bind(local, crate::AppId(6)).unwrap();
    let mut client =
        crate::Client::connect(server.address(), crate::AppId(6), server.key()).unwrap();
    let mut last = std::collections::BTreeMap::new();
    let mut fallen = BTreeSet::new();
    let mut text = String::new();
    for round in 0..20_000_u32 {
        server.poll();
        client.wait_tick(core::num::NonZeroU8::MAX).unwrap();
        if round % 20 < 10 {
            // Refused until the session is open.
            client.send(crate::RELIABLE, &[7; 10_000]).ok();
        }
        client.poll();
        text = client.report().to_prometheus();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse::<f64>().unwrap();
            if last
                .insert(series.to_owned(), value)
                .is_some_and(|it| value < it)
            {
                fallen.insert(series.split('{').next().unwrap().to_owned());
            }
        }
        if round >= 100 && fallen.contains("tickwire_session_in_flight_bytes") {
            break;
        }
    }
    let gauges = of_kind(&text, "gauge");
    assert!(
        fallen.contains("tickwire_session_in_flight_bytes"),
        "{fallen:?}"
    );
    assert!(fallen.is_subset(&gauges), "{fallen:?}");
}
