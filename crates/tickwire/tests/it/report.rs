//! Reports of a server and of a client.

use core::num::NonZeroU8;

use tickwire::{Client, Event, RELIABLE, Report, Server};

use crate::exchange::{APP, address};

const HZ: NonZeroU8 = NonZeroU8::MIN.saturating_add(99);

/// Plays for a little more than `seconds`; returns both reports.
fn play(seconds: u64) -> (Report, Report) {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
    loop {
        for event in server.wait_tick(HZ).unwrap() {
            if let Event::Message { session, bytes, .. } = event {
                server.send(session, RELIABLE, &bytes).unwrap();
            }
        }
        // Some work of the game; its duration is not tested.
        std::hint::black_box((0..20_000_u64).fold(0, |sum, next| sum ^ (next * next)));
        client.poll();
        // Fails until the session is open.
        client.send(RELIABLE, b"0123456789").ok();
        if server.report().uptime_ms > seconds * 1_000 + 200 {
            return (server.report(), client.report());
        }
    }
}

#[test]
fn u18_a_report_has_counters_series_round_trip_and_time_spent() {
    let (server, client) = play(2);
    for report in [&server, &client] {
        assert_eq!(report.schema, Report::SCHEMA);
        assert_eq!(report.sessions, 1);
        assert!(report.traffic.packets_received > 20, "{report:?}");
        assert!(report.traffic.packets_acknowledged > 20, "{report:?}");
        assert!(report.traffic.rtt_us > 0, "{report:?}");
        assert!(report.traffic.queueing_us <= report.traffic.rtt_us);
        assert!(report.load.receive_us > 0, "{report:?}");
        assert!(report.load.send_us > 0, "{report:?}");
        assert!(report.load.game_us > 0, "{report:?}");
        // Slightly over two seconds, even if a loaded machine polled late.
        assert!((1..=2).contains(&report.series.len()), "{report:?}");
        let counted: u64 = report.series.iter().map(|it| it.traffic.packets_sent).sum();
        assert!(counted > 0 && counted <= report.endpoint.datagrams_sent);
        assert_eq!(report.session.len(), 1);
        assert!(!report.session[0].series.is_empty());
    }
    let ticks: u64 = server.series.iter().map(|it| it.load.ticks).sum();
    assert!(ticks > 0 && ticks <= server.load.ticks);
    // The client polls and runs no ticks.
    assert_eq!(client.load.ticks, 0);
    // The threads' work fits in the elapsed time.
    let load = server.load;
    let spent = load.receive_us + load.game_us + load.send_us;
    assert!(spent <= (server.uptime_ms + 1) * 1_000, "{server:?}");
}

#[cfg(feature = "stats")]
#[test]
fn u18_a_report_is_written_as_json_and_as_prometheus_text() {
    let (server, _) = play(1);
    let json = server.to_json();
    for part in [
        "{\"schema\":1,\"uptime_ms\":",
        "\"endpoint\":{\"packets\":",
        "\"driver\":{\"turns\":",
        "\"series\":[{\"end_ms\":",
        "\"session\":[{\"session\":\"0.0\",\"packets_sent\":",
        "\"rtt_us\":",
    ] {
        assert!(json.contains(part), "{part}\n{json}");
    }
    let text = server.to_prometheus();
    let sent = format!(
        "tickwire_endpoint_datagrams_sent_total {}\n",
        server.endpoint.datagrams_sent
    );
    assert!(text.contains(&sent), "{text}");
    assert!(text.contains("tickwire_sessions 1\n"), "{text}");
}
