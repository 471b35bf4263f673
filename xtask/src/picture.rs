//! The picture of a run: an SVG made of the report of `cargo run --release --example stack`.
//!
//! It has a bar for each player's round trip, direct and through the relays, and a line for each
//! fault. A chart library would be larger than the forty lines of markup.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;

/// The report to draw, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The report of a run: `cargo run --release --example stack -- --report FILE`.
    report: PathBuf,
    /// The picture.
    #[arg(long, default_value = PICTURE)]
    output: PathBuf,
}

/// The picture of the first page.
const PICTURE: &str = "docs/pictures/stack.svg";

/// What is drawn of a report.
#[derive(Deserialize)]
struct Report {
    processes: usize,
    seconds: u32,
    direct_rtt_ms: Quantiles,
    accelerated_rtt_ms: Quantiles,
    players_rtt_ms: Vec<Player>,
    reroutes: Vec<Reroute>,
    mail: Mail,
    checks: Vec<Check>,
}

#[derive(Deserialize)]
struct Quantiles {
    p50: f64,
}

#[derive(Deserialize)]
struct Player {
    city: String,
    direct: f64,
    accelerated: f64,
}

#[derive(Deserialize)]
struct Reroute {
    cause: String,
    gap_ms: f64,
}

#[derive(Deserialize)]
struct Mail {
    delivered: u64,
    duplicates: u64,
    in_flight_at_kill: u64,
    sent: u64,
}

#[derive(Deserialize)]
struct Check {
    ok: bool,
}

/// Reads the report and writes the picture.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let failure = |path: &Path, source| Failure::File {
        path: path.to_path_buf(),
        source,
    };
    let path = &options.report;
    let text = fs::read_to_string(path).map_err(|source| failure(path, source))?;
    let report = serde_json::from_str(&text)
        .map_err(|error| Failure::Check(format!("{}: {error}", path.display())))?;
    let output = &options.output;
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder).map_err(|source| failure(folder, source))?;
    }
    fs::write(output, draw(&report)).map_err(|source| failure(output, source))?;
    println!("picture: {}", output.display());
    Ok(())
}

/// Width of the picture.
const WIDTH: u32 = 760;
/// Left end of the bars.
const LEFT: u32 = 130;
/// Length of the longest bar.
const BAR: f64 = 520.0;
/// Height of a player's row.
const ROW: u32 = 34;
/// Height of a line of text.
const LINE: u32 = 22;

/// Draws the picture. Colours follow the reader's light or dark scheme.
fn draw(report: &Report) -> String {
    let mut svg = String::new();
    let longest = report.players_rtt_ms.iter().map(|it| it.direct);
    let longest = longest.chain([1.0]).fold(1.0, f64::max);
    let mut y = 30;
    let text = |svg: &mut String, x: u32, y: u32, class: &str, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        // Writing to a string cannot fail.
        writeln!(
            svg,
            r#"<text x="{x}" y="{y}" class="{class}">{text}</text>"#
        )
        .ok();
    };
    let title = format!(
        "Round trip of {} players, ms: direct, and through Tickwire's relays",
        report.players_rtt_ms.len()
    );
    text(&mut svg, 16, y, "title", &title);
    y += 14;
    for player in &report.players_rtt_ms {
        text(&mut svg, 16, y + 20, "", &player.city);
        for (class, value, top) in [
            ("direct", player.direct, 2),
            ("relayed", player.accelerated, 15),
        ] {
            let length = value / longest * BAR;
            let bar = y + top;
            writeln!(
                svg,
                r#"<rect x="{LEFT}" y="{bar}" width="{length:.1}" height="11" class="{class}"/>"#
            )
            .ok();
            let end = f64::from(LEFT) + length + 6.0;
            let base = bar + 10;
            writeln!(
                svg,
                r#"<text x="{end:.1}" y="{base}" class="small">{value:.1}</text>"#
            )
            .ok();
        }
        y += ROW;
    }
    y += LINE;
    for line in lines(report) {
        text(&mut svg, 16, y, "", &line);
        y += LINE;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 \
         {WIDTH} {y}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n{svg}</svg>\n"
    )
}

/// The lines below the bars.
fn lines(report: &Report) -> Vec<String> {
    let (direct, relayed) = (report.direct_rtt_ms.p50, report.accelerated_rtt_ms.p50);
    let mut lines = vec![format!(
        "{} processes, {} s: median {direct:.1} ms direct, {relayed:.1} ms relayed",
        report.processes, report.seconds
    )];
    for reroute in &report.reroutes {
        let fault = match reroute.cause.as_str() {
            "degraded" => "The link in use gets 100 ms slower and loses 10 %",
            "killed" => "The relay in use is killed",
            other => other,
        };
        lines.push(format!("{fault}: longest silence {:.0} ms", reroute.gap_ms));
    }
    let Mail {
        sent,
        delivered,
        duplicates,
        in_flight_at_kill,
    } = report.mail;
    lines.push(format!(
        "The hub is killed with {in_flight_at_kill} mails in flight: {} of {sent} lost, {duplicates} \
         delivered twice",
        sent.saturating_sub(delivered)
    ));
    let passed = report.checks.iter().filter(|check| check.ok).count();
    lines.push(format!("{passed} of {} checks pass", report.checks.len()));
    lines
}

const STYLE: &str = "text{font:14px system-ui,sans-serif;fill:#1f2933}.title{font-weight:600}\
                     .small{font-size:11px}.direct{fill:#9aa5b1}.relayed{fill:#2b7de9}\
                     @media(prefers-color-scheme:dark){text{fill:#e4e7eb}.direct{fill:#616e7c}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_row_for_each_player_and_a_line_for_each_fault() {
        let report = r#"{
            "processes": 10, "seconds": 60, "other": 1,
            "direct_rtt_ms": {"p50": 100.0, "p99": 1}, "accelerated_rtt_ms": {"p50": 80.0, "p99": 1},
            "players_rtt_ms": [
                {"player": 0, "city": "A<B", "direct": 200.0, "accelerated": 100.0},
                {"player": 1, "city": "Oslo", "direct": 50.0, "accelerated": 50.0}
            ],
            "reroutes": [
                {"cause": "degraded", "gap_ms": 120.4}, {"cause": "killed", "gap_ms": 230.0}
            ],
            "mail": {"sent": 5, "delivered": 5, "duplicates": 0, "in_flight_at_kill": 64},
            "checks": [{"ok": true}, {"ok": false}]
        }"#;
        let svg = draw(&serde_json::from_str(report).unwrap());
        for part in [
            r#"width="520.0" height="11" class="direct""#,
            r#"width="260.0" height="11" class="relayed""#,
            "A&lt;B",
            ">Oslo<",
            "loses 10 %: longest silence 120 ms",
            "The relay in use is killed: longest silence 230 ms",
            "64 mails in flight: 0 of 5 lost, 0 delivered twice",
            "median 100.0 ms direct, 80.0 ms relayed",
            "1 of 2 checks pass",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn the_first_page_shows_the_picture() {
        let page = include_str!("../../README.md");
        assert!(page.contains(PICTURE));
    }
}
