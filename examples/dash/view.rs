//! Renders a report as text.

use std::fmt::Write;

use crate::report::{Report, Second, Session};

/// Maximum number of sessions shown: those with the most traffic in the last second.
const SESSIONS: usize = 10;

/// Renders a report.
pub(crate) fn page(report: &Report) -> String {
    let mut page = format!(
        "connections {}   up {} s\n\n",
        report.sessions,
        report.uptime_ms / 1_000
    );
    let spans = [1, 10, 60].map(|count| Second::of(&report.series, count));
    page.push_str("                       last s      10 s      60 s\n");
    for (name, value) in ROWS {
        let [one, ten, all] = spans.map(|span| value(&span));
        line(
            &mut page,
            format_args!("{name:<19} {one:>9} {ten:>9} {all:>9}"),
        );
    }
    for (name, value) in LINES {
        let values: Vec<_> = report.series.iter().map(value).collect();
        line(&mut page, format_args!("\n{name:<14} {}", graph(&values)));
    }
    sessions(&mut page, &report.session);
    page
}

/// A row's name, and its text for a span.
type Row = (&'static str, fn(&Second) -> String);

const ROWS: [Row; 12] = [
    ("acknowledged %", |it| percent(it.acknowledged())),
    ("packets in /s", |it| {
        it.rate(it.packets_received).to_string()
    }),
    ("packets out /s", |it| it.rate(it.packets_sent).to_string()),
    ("bytes in /s", |it| it.rate(it.bytes_received).to_string()),
    ("bytes out /s", |it| it.rate(it.bytes_sent).to_string()),
    ("round trip ms", |it| millis(it.rtt_us)),
    ("  of it queueing", |it| millis(it.queueing_us)),
    ("ticks /s", |it| it.rate(it.ticks).to_string()),
    ("ticks missed", |it| it.ticks_missed.to_string()),
    ("time receiving %", |it| percent(it.share(it.receive_us))),
    ("time of game %", |it| percent(it.share(it.game_us))),
    ("time sending %", |it| percent(it.share(it.send_us))),
];

/// A graph's name, and its value for each second.
type Line = (&'static str, fn(&Second) -> u64);

const LINES: [Line; 3] = [
    ("packets in /s", |it| it.rate(it.packets_received)),
    ("packets out /s", |it| it.rate(it.packets_sent)),
    ("packets lost", |it| it.packets_lost),
];

fn sessions(page: &mut String, sessions: &[Session]) {
    if sessions.is_empty() {
        return;
    }
    let mut last: Vec<_> = sessions
        .iter()
        .map(|it| (it, Second::of(&it.series, 1)))
        .collect();
    // Busiest first; ties keep the report's order.
    last.sort_by_key(|(_, second)| {
        core::cmp::Reverse(second.bytes_sent.saturating_add(second.bytes_received))
    });
    line(
        page,
        format_args!(
            "\n{:<18} {:>9} {:>9} {:>9} {:>9}",
            "session", "in B/s", "out B/s", "ack %", "trip ms"
        ),
    );
    for (session, second) in last.iter().take(SESSIONS) {
        // A name comes from the network and must not contain control characters.
        let name: String = session
            .session
            .chars()
            .filter(|it| !it.is_control())
            .collect();
        line(
            page,
            format_args!(
                "{name:<18} {:>9} {:>9} {:>9} {:>9}",
                second.rate(second.bytes_received),
                second.rate(second.bytes_sent),
                percent(second.acknowledged()),
                millis(second.rtt_us)
            ),
        );
    }
    if let Some(more) = sessions
        .len()
        .checked_sub(SESSIONS)
        .filter(|more| *more > 0)
    {
        line(page, format_args!("and {more} more"));
    }
}

fn line(page: &mut String, text: core::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    writeln!(page, "{text}").unwrap_or_default();
}

fn percent(thousandths: Option<u64>) -> String {
    thousandths.map_or_else(|| "-".to_owned(), |it| format!("{}.{}", it / 10, it % 10))
}

fn millis(micros: u64) -> String {
    format!("{}.{}", micros / 1_000, micros % 1_000 / 100)
}

/// Draws one column per value, scaled to the highest.
fn graph(values: &[u64]) -> String {
    let top = values.iter().copied().max().unwrap_or_default();
    let mut line: String = values
        .iter()
        .map(|value| {
            let height = value.saturating_mul(7).checked_div(top).unwrap_or_default();
            let height = usize::try_from(height).unwrap_or_default();
            COLUMNS.get(height).copied().unwrap_or(' ')
        })
        .collect();
    write!(line, " {top}").unwrap_or_default();
    line
}

const COLUMNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
        let line = page.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().collect()
    }

    #[test]
    fn u19_every_row_covers_its_own_time_span() {
        let second = |packets: u64, lost: u64| {
            format!(
                "{{\"end_ms\":1,\"span_ms\":1000,\"packets_received\":{packets},\
                 \"bytes_received\":1200,\"packets_sent\":30,\"bytes_sent\":6000,\
                 \"packets_acknowledged\":{},\"packets_lost\":{lost},\"rtt_us\":20440,\
                 \"queueing_us\":900,\"ticks\":60,\"ticks_missed\":1,\"receive_us\":10000,\
                 \"game_us\":250000,\"send_us\":5000}}",
                100 - lost
            )
        };
        // 50 seconds of 10 packets, 9 of 20, and one of 40 with losses.
        let mut series = vec![second(10, 0); 50];
        series.extend(vec![second(20, 0); 9]);
        series.push(second(40, 25));
        let busy = format!(
            "{{\"session\":\"b\\u001b[2J\",\"series\":[{}]}}",
            second(9, 50)
        );
        let json = format!(
            "{{\"schema\":1,\"uptime_ms\":61000,\"sessions\":2,\"more\":[],\"series\":[{}],\
             \"session\":[{{\"session\":\"a\",\"series\":[]}},{busy}]}}",
            series.join(",")
        );
        let report: Report = serde_json::from_str(&json).unwrap();
        let page = page(&report);
        assert!(page.starts_with("connections 2   up 61 s\n"), "{page}");
        assert_eq!(row(&page, "acknowledged %"), ["75.0", "97.5", "99.5"]);
        assert_eq!(row(&page, "packets in /s"), ["40", "22", "12"]);
        assert_eq!(row(&page, "bytes out /s"), ["6000"; 3]);
        assert_eq!(row(&page, "round trip ms"), ["20.4"; 3]);
        assert_eq!(row(&page, "  of it queueing"), ["0.9"; 3]);
        assert_eq!(row(&page, "ticks /s"), ["60"; 3]);
        assert_eq!(row(&page, "ticks missed"), ["1", "10", "60"]);
        assert_eq!(row(&page, "time of game %"), ["25.0"; 3]);
        assert_eq!(row(&page, "time receiving %"), ["1.0"; 3]);
        assert_eq!(
            row(&page, "packets lost"),
            [&format!("{}█", "▁".repeat(59)), "25"]
        );
        let names: Vec<_> = page.lines().rev().take(2).collect();
        assert!(
            names[0].starts_with("a ") && names[1].starts_with("b[2J "),
            "{page}"
        );
        assert_eq!(row(&page, "b[2J"), ["1200", "6000", "50.0", "20.4"]);
    }

    #[test]
    fn missing_and_huge_values_are_displayed() {
        let empty = page(&Report::default());
        assert_eq!(row(&empty, "acknowledged %"), ["-"; 3]);
        assert_eq!(row(&empty, "ticks /s"), ["0"; 3]);
        let max = u64::MAX;
        let json = format!(
            "{{\"series\":[{0},{0}]}}",
            format_args!(
                "{{\"span_ms\":1,\"packets_received\":{max},\"receive_us\":{max},\"packets_acknowledged\":{max},\"packets_lost\":{max}}}"
            )
        );
        page(&serde_json::from_str(&json).unwrap());
    }
}
