//! Prometheus text, format 0.0.4.

use core::fmt::{Display, Write as _};

use serde_json::{Map, Value};

use super::{Report, SessionReport};

pub(super) fn text(report: &Report) -> String {
    let mut page = Page::default();
    page.gauge("tickwire_uptime_seconds", &seconds(report.uptime_ms, 1_000));
    page.gauge("tickwire_sessions", &report.sessions);
    page.counters("tickwire_endpoint_", &report.endpoint);
    page.counters("tickwire_driver_", &report.driver);
    let mut traffic = fields(&report.traffic);
    for (name, gauge) in GAUGES {
        traffic.remove(name);
        let micros = match name {
            "rtt_us" => report.traffic.rtt_us,
            _ => report.traffic.queueing_us,
        };
        let name = ["tickwire_", gauge].concat();
        page.gauge(&name, &seconds(micros, 1_000_000));
    }
    page.counters("tickwire_traffic_", &traffic);
    page.counter("tickwire_ticks_total", &report.load.ticks);
    page.counter("tickwire_ticks_missed_total", &report.load.ticks_missed);
    page.head("tickwire_tick_seconds_total", "counter");
    for (part, micros) in [
        ("receive", report.load.receive_us),
        ("game", report.load.game_us),
        ("send", report.load.send_us),
    ] {
        let label = format!("{{part=\"{part}\"}}");
        let spent = seconds(micros, 1_000_000);
        page.line("tickwire_tick_seconds_total", &label, &spent);
    }
    page.sessions(&report.session);
    page.0
}

/// Traffic fields that are gauges, in microseconds, with their metric names in seconds.
const GAUGES: [(&str, &str); 2] = [
    ("rtt_us", "rtt_seconds"),
    ("queueing_us", "queueing_seconds"),
];

/// Session fields that are gauges, besides durations, with their metric names. All others are
/// counters.
const SESSION_GAUGES: [(&str, &str); 4] = [
    ("bytes_in_flight", "in_flight_bytes"),
    ("congestion_window", "congestion_window_bytes"),
    ("mtu", "mtu_bytes"),
    ("realtime_rate", "realtime_rate_bytes_per_second"),
];

fn session_metric(field: &str) -> (String, &'static str) {
    let gauge = SESSION_GAUGES.iter().find(|(name, _)| *name == field);
    match (field.strip_suffix("_us"), gauge) {
        (Some(span), _) => (format!("tickwire_session_{span}_seconds"), "gauge"),
        (None, Some((_, name))) => (format!("tickwire_session_{name}"), "gauge"),
        (None, None) => (format!("tickwire_session_{field}_total"), "counter"),
    }
}

/// Builds a page of metrics in Prometheus text, format 0.0.4.
///
/// ```
/// #[derive(serde::Serialize)]
/// struct Seen {
///     packets: u64,
///     dropped_late: u64,
/// }
///
/// let mut page = tickwire::stats::Page::default();
/// page.counters("game_", &Seen { packets: 7, dropped_late: 1 });
/// let text = page.into_text();
/// assert!(text.contains("game_packets_total 7"));
/// assert!(text.contains("game_dropped_total{reason=\"late\"} 1"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str) {
        // Writing to a string does not fail, here and below.
        writeln!(self.0, "# TYPE {name} {kind}").unwrap_or_default();
    }

    fn line(&mut self, name: &str, labels: &str, value: &dyn Display) {
        writeln!(self.0, "{name}{labels} {value}").unwrap_or_default();
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, value: &dyn Display) {
        self.head(name, "gauge");
        self.line(name, "", value);
    }

    /// Adds a counter; `name` must end with `_total`.
    pub fn counter(&mut self, name: &str, value: &dyn Display) {
        self.head(name, "counter");
        self.line(name, "", value);
    }

    /// Adds a metric of `kind` with one value for each label set, such as `node="a"`.
    pub fn labelled(
        &mut self,
        (name, kind): (&str, &str),
        values: impl IntoIterator<Item = (String, String)>,
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.head(name, kind);
        }
        for (labels, value) in values {
            self.line(name, &format!("{{{labels}}}"), &value);
        }
    }

    /// Adds every field of a struct of numbers as a counter named `prefix` plus the field's name.
    /// Fields `dropped_*` become one metric with label `reason`. Fields of a nested struct get its
    /// name as a further prefix.
    pub fn counters(&mut self, prefix: &str, stats: &impl serde::Serialize) {
        self.count(prefix, &fields(stats));
    }

    /// Returns the text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    fn count(&mut self, prefix: &str, fields: &Map<String, Value>) {
        let (dropped, others): (Vec<_>, Vec<_>) = fields
            .iter()
            .partition(|(field, _)| field.starts_with(DROPPED));
        for (field, value) in others {
            if let Value::Object(inner) = value {
                self.count(&format!("{prefix}{field}_"), inner);
            } else {
                self.counter(&format!("{prefix}{field}_total"), value);
            }
        }
        if dropped.is_empty() {
            return;
        }
        let name = format!("{prefix}dropped_total");
        self.head(&name, "counter");
        for (field, value) in dropped {
            let reason = field.trim_start_matches(DROPPED);
            self.line(&name, &format!("{{reason=\"{reason}\"}}"), value);
        }
    }

    /// Writes the counters of all sessions, grouped by metric.
    fn sessions(&mut self, sessions: &[SessionReport]) {
        let rows: Vec<(&str, Map<String, Value>)> = sessions
            .iter()
            .map(|it| (it.session.as_str(), session_fields(it)))
            .collect();
        let Some((_, first)) = rows.first() else {
            return;
        };
        for field in first.keys() {
            let (name, kind) = session_metric(field);
            self.head(&name, kind);
            for (session, fields) in &rows {
                let value = fields.get(field).and_then(Value::as_u64).unwrap_or(0);
                let label = format!("{{session=\"{session}\"}}");
                if field.ends_with("_us") {
                    self.line(&name, &label, &seconds(value, 1_000_000));
                } else {
                    self.line(&name, &label, &value);
                }
            }
        }
    }
}

fn session_fields(report: &SessionReport) -> Map<String, Value> {
    let mut fields = fields(&report.stats);
    fields.insert("queueing_us".to_owned(), report.queueing_us.into());
    fields
}

fn fields(stats: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(stats) {
        Ok(Value::Object(fields)) => fields,
        // A struct of numbers always serializes to an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// `count` parts of a second, as a decimal number of seconds.
fn seconds(count: u64, parts: u64) -> String {
    let digits = if parts == 1_000 { 3 } else { 6 };
    format!("{}.{:0digits$}", count / parts, count % parts)
}

const DROPPED: &str = "dropped_";

#[cfg(test)]
mod tests;
