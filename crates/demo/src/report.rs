//! The report of a run, for programs.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use daemon::exit::Failure;
use serde::{Deserialize, Serialize};

use super::message::Quantiles;
use super::plan::{PlanOptions, RELAYS};

/// The outcome of one run, as `--report` writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Length of the match, seconds.
    pub seconds: u32,
    /// Number of bots.
    pub players: u16,
    /// Mesh nodes started.
    pub nodes: u8,
    /// Living descendants at the start of the match.
    pub processes: usize,
    /// Ticks that every player simulated.
    pub ticks: u32,
    /// Whether all players' states were equal after each tick.
    pub state_hashes_equal: bool,
    /// Round trips of the players' direct sessions.
    pub direct_rtt_ms: RoundTrips,
    /// Round trips of the sessions on each player's assigned route, through the mesh or direct,
    /// also while the player used another one.
    pub accelerated_rtt_ms: RoundTrips,
    /// Of those of them that use the mesh.
    pub mesh_rtt_ms: RoundTrips,
    /// Median of the players' [`PlayerTrips::optimum`].
    pub optimum_rtt_ms: f64,
    /// Round trips of each player.
    pub players_rtt_ms: Vec<PlayerTrips>,
    /// Effect of each fault.
    pub reroutes: Vec<Reroute>,
    /// Tickets that the matchmaker accepted.
    pub tickets: u64,
    /// Tokens that it issued.
    pub tokens_issued: u64,
    /// Joins that the game server rejected.
    pub joins_refused: u64,
    /// Mail through the hub.
    pub mail: Mail,
    /// Sum of the counts on the hub's disk: ticks that the game server counted.
    pub stats_events: u64,
    /// The checks.
    pub checks: Vec<Check>,
    /// Whether all checks passed.
    pub ok: bool,
}

impl Report {
    pub(crate) fn new(options: &PlanOptions) -> Self {
        Self {
            seed: options.seed,
            seconds: options.seconds,
            players: options.players,
            nodes: RELAYS,
            ..Self::default()
        }
    }

    /// Adds the reason why the run did not end normally.
    pub(crate) fn broken_off(mut self, reason: &str) -> Self {
        self.check("the run comes to its end", false, reason);
        self.ok = false;
        self
    }

    #[expect(clippy::fn_params_excessive_bools, reason = "the field of a check")]
    pub(crate) fn check(&mut self, name: impl Into<String>, ok: bool, detail: impl Into<String>) {
        self.checks.push(Check {
            name: name.into(),
            ok,
            detail: detail.into(),
        });
    }

    /// Adds a check that passes if nothing was `found`; its detail is then `good`.
    pub(crate) fn check_none(
        &mut self,
        name: &str,
        found: &[String],
        good: impl FnOnce() -> String,
    ) {
        let ok = found.is_empty();
        let detail = if ok { good() } else { found.join("; ") };
        self.check(name, ok, detail);
    }
}

/// Median round trips of one player, milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayerTrips {
    /// Its number in the plan. Its seat is the matchmaker's choice.
    pub player: u16,
    /// City.
    pub city: String,
    /// Of the session on the direct route.
    pub direct: f64,
    /// Of the session on the assigned route.
    pub accelerated: f64,
    /// The same if that route uses the mesh.
    pub mesh: Option<f64>,
    /// Of the sessions used for play.
    pub played: f64,
    /// Of the best route at every moment, faults included, by exhaustive search over mean delays.
    pub optimum: f64,
}

/// Two quantiles, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl From<Quantiles> for RoundTrips {
    fn from(quantiles: Quantiles) -> Self {
        Self {
            p50: millis(quantiles.p50_us),
            p99: millis(quantiles.p99_us),
        }
    }
}

/// Effect of one fault on the players that it hit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reroute {
    /// The fault.
    pub cause: Cause,
    /// From the fault to the end of the longest silence that it caused for a player.
    pub gap_ms: f64,
    /// Datagrams without an answer, of all players.
    pub lost_datagrams: u32,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A link became slow and lossy.
    Degraded,
    /// A relay was killed.
    Killed,
}

/// Mail through the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Given to the hub, without retransmissions.
    pub sent: u64,
    /// Stored, as the hub acknowledged.
    pub acknowledged: u64,
    /// Delivered to readers.
    pub delivered: u64,
    /// Delivered again.
    pub duplicates: u64,
    /// Not acknowledged if the sender lost the link to the killed hub.
    pub in_flight_at_kill: u64,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// What was found.
    pub detail: String,
}

/// Converts microseconds to milliseconds; exact below an hour.
pub(crate) fn millis(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1_000.0
}

/// Holds the report of this run from its start, so that no older one is taken for it.
#[derive(Debug)]
pub(crate) struct ReportFile {
    path: PathBuf,
    /// A pipe or device. It stays open: its reader ends with it, and a second open would wait for
    /// another reader.
    stream: Option<File>,
}

impl ReportFile {
    /// Replaces the contents of `path` by a report of an unfinished run. It stays if the run is
    /// killed.
    pub(crate) fn create(path: &Path, options: &PlanOptions) -> Result<Self, Failure> {
        let mut report = Self {
            path: path.to_owned(),
            stream: None,
        };
        let file = report.open()?;
        let metadata = file.metadata().map_err(|error| report.failure(&error))?;
        if metadata.is_file() {
            let unended = Report::new(options).broken_off("it was ended before that");
            report.put(file, &unended)?;
        } else {
            report.stream = Some(file);
        }
        Ok(report)
    }

    /// Writes the report of the run.
    pub(crate) fn write(mut self, report: &Report) -> Result<(), Failure> {
        let file = match self.stream.take() {
            Some(file) => file,
            None => self.open()?,
        };
        self.put(file, report)
    }

    fn open(&self) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = options.open(&self.path);
        file.map_err(|error| self.failure(&error))
    }

    fn put(&self, mut file: File, report: &Report) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(report).map_err(io::Error::from);
        text.and_then(|text| file.write_all((text + "\n").as_bytes()))
            .map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let name = self.path.display();
        Failure::usage(format_args!("{name}: report: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Read};
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_report_has_its_documented_fields() {
        let report = Report {
            reroutes: vec![Reroute {
                cause: Cause::Killed,
                gap_ms: 120.5,
                lost_datagrams: 4,
            }],
            checks: vec![Check {
                name: "a".to_owned(),
                ok: true,
                detail: "b".to_owned(),
            }],
            ..Report::default()
        };
        let value = serde_json::to_value(&report).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        let mut promised = vec![
            "seed",
            "seconds",
            "players",
            "nodes",
            "processes",
            "ticks",
            "state_hashes_equal",
            "direct_rtt_ms",
            "accelerated_rtt_ms",
            "mesh_rtt_ms",
            "optimum_rtt_ms",
            "players_rtt_ms",
            "reroutes",
            "tickets",
            "tokens_issued",
            "joins_refused",
            "mail",
            "stats_events",
            "checks",
            "ok",
        ];
        promised.sort_unstable();
        assert_eq!(keys, promised);
        assert_eq!(value["reroutes"][0]["cause"], "killed");
        assert_eq!(value["reroutes"][0]["gap_ms"], 120.5);
        assert!(value["direct_rtt_ms"]["p99"].is_number());
        assert_eq!(value["mail"]["duplicates"], 0);
        assert_eq!(value["mail"]["in_flight_at_kill"], 0);
        assert_eq!(value["checks"][0]["detail"], "b");
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
    }

    /// From open(2), on Linux.
    const O_NONBLOCK: i32 = 0o4_000;

    #[test]
    fn a_named_pipe_gets_the_last_report_only() {
        let name = format!("tickwire-report-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut options = OpenOptions::new();
        let pipe = options.read(true).custom_flags(O_NONBLOCK).open(&path);
        let options = PlanOptions {
            seed: 7,
            seconds: 6,
            players: 1,
            ..PlanOptions::default()
        };
        let file = ReportFile::create(&path, &options);
        fs::remove_file(&path).unwrap();
        let mut pipe = pipe.unwrap();
        let read = pipe.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::WouldBlock), "neither text nor the end");
        let report = Report {
            ok: true,
            ..Report::new(&options)
        };
        file.unwrap().write(&report).unwrap();
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
