//! `tickwire matchmaker`.

mod limit;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use crossbeam_channel::Receiver;
use matchmaker_core::{MatchEnd, Rule, TeamSize};
use serde_json::{Value, json};

use super::host::HostPort;
use super::{POLL_INTERVAL, Requests, SHUTDOWN_TIMEOUT, StdinEnd, log, print_line};
use crate::allocator::{ChildOutput, LocalProcessConfig, PortRange};
use crate::edge::Transport;
use crate::exit::{Exit, Failure};
use crate::http::client;
use crate::http::client::Request;
use crate::role::matchmaker::{MatchResult, MatchmakerOptions, MatchmakerProcess};
use crate::signals::Signal;
use crate::{hex, trust};
use limit::{EdgeLimits, MatchLimits};

/// Commands of a matchmaker.
#[derive(Clone, Debug, Subcommand)]
pub enum MatchmakerCommand {
    /// Runs a matchmaker until it is killed; the game servers that it started end with it.
    Run(Box<RunMatchmaker>),
    /// Prints the state of a matchmaker; exits with 1 if it has no link to its hub.
    Status(StatusArgs),
}

/// Options of `matchmaker run`.
#[derive(Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct RunMatchmaker {
    /// Identity file; the join file lists its key as a matchmaker.
    #[arg(long)]
    identity: PathBuf,
    /// Join file.
    #[arg(long)]
    join_file: PathBuf,
    /// Address of the HTTP edge, as HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    http: HostPort,
    /// Serves HTTP without TLS, on a loopback address only.
    #[arg(long)]
    plain_http: bool,
    /// Id of the game and its build.
    #[arg(long)]
    app_id: u64,
    /// Teams of a match.
    #[arg(long, default_value_t = 2)]
    teams: u8,
    /// Players of a team.
    #[arg(long, default_value_t = 1)]
    team_size: u8,
    #[command(flatten)]
    pool: PoolOptions,
    /// Prints a line of JSON for each match that ends: its id, the reason, and the server's result.
    #[arg(long)]
    results: bool,
    /// Ends in order when stdin closes.
    #[arg(long)]
    end_with_stdin: bool,
    #[command(flatten)]
    edge: EdgeLimits,
    #[command(flatten)]
    matches: MatchLimits,
}

/// The game servers that the matchmaker starts.
#[derive(Args, Clone, Debug)]
struct PoolOptions {
    /// Servers with free seats that are kept ready.
    #[arg(long, default_value_t = 1)]
    warm: u16,
    /// Identity file of a game server to start; repeat for each slot.
    #[arg(long = "slot", value_name = "IDENTITY")]
    slots: Vec<PathBuf>,
    /// Address of these game servers for players.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    server_ip: IpAddr,
    /// Their ports, one for each slot, as FIRST-LAST.
    #[arg(
        long,
        value_name = "FIRST-LAST",
        required_unless_present = "no_servers"
    )]
    ports: Option<PortRange>,
    /// Starts no game servers; they are started by others.
    #[arg(long, conflicts_with_all = ["slots", "ports", "server"])]
    no_servers: bool,
    /// Prints the stdout of game servers to this process's stdout.
    #[arg(long)]
    server_output: bool,
    /// Game server program and its arguments, after `--`.
    #[arg(
        last = true,
        value_name = "PROGRAM",
        required_unless_present = "no_servers"
    )]
    server: Vec<OsString>,
}

impl MatchmakerCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Run(_) => false,
            Self::Status(options) => options.json,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Run(options) => options.run(),
            Self::Status(options) => options.run(),
        }
    }
}

impl RunMatchmaker {
    fn run(&self) -> Result<(), Failure> {
        log()?;
        let identity = trust::read_identity(&self.identity)?;
        let join_file = trust::read_join_file(&self.join_file)?;
        let size = TeamSize::new(self.teams, self.team_size).map_err(Failure::usage)?;
        let mut config = self.matches.config()?;
        config.warm = self.pool.warm;
        let transport = if self.plain_http {
            Transport::PlainHttp
        } else {
            Transport::Tls
        };
        let matchmaker = MatchmakerProcess::start(MatchmakerOptions {
            identity: &identity,
            join_file: &join_file,
            app_id: self.app_id,
            rule: Rule::TeamSize(size),
            config,
            pool: self.pool.config(&self.join_file)?,
            edge: self.edge.config(self.http.listen()?, transport),
        })?;
        // The reader of stdout may be gone.
        print_line(&format!(
            "matchmaker {} listens on http://{}",
            identity.node_id(),
            matchmaker.address()
        ))
        .ok();
        let results = self.results.then(|| matchmaker.results()).transpose()?;
        let stdin = self.end_with_stdin.then(StdinEnd::watch).transpose()?;
        let requests = Requests::watch(stdin)?;
        let result = loop {
            // There is nothing to reload.
            if requests.next() == Some(Signal::Stop) {
                break Ok(());
            }
            let waited = matchmaker.wait(POLL_INTERVAL);
            for result in results.iter().flat_map(Receiver::try_iter) {
                let line = line(&result);
                if let Err(Failure { sentence, .. }) = print_line(&line) {
                    tracing::error!(line, "a result is lost: {sentence}");
                }
            }
            if let Err(failure) = waited {
                break Err(failure);
            }
        };
        // After a failure too: its successor starts game servers with the same keys.
        matchmaker.shutdown(SHUTDOWN_TIMEOUT);
        result
    }
}

impl PoolOptions {
    fn config(&self, join_file: &Path) -> Result<Option<LocalProcessConfig>, Failure> {
        let (Some(ports), Some((program, arguments))) = (self.ports, self.server.split_first())
        else {
            return Ok(None);
        };
        if self.slots.is_empty() {
            return Err(Failure::usage(
                "game servers need an identity each: give --slot once for each",
            )
            .in_field("--slot"));
        }
        let (servers, count) = (self.slots.len(), ports.count());
        if u32::try_from(servers) != Ok(count) {
            return Err(Failure::usage(format_args!(
                "found {servers} --slot for {count} ports ({ports}), expected as many: each game \
                 server has an identity and a port of its own"
            ))
            .in_field("--ports"));
        }
        if usize::from(self.warm) > servers {
            return Err(Failure::usage(format_args!(
                "found --warm {}, expected at most {servers}, one for each --slot",
                self.warm
            ))
            .in_field("--warm"));
        }
        if self.server_ip.is_unspecified() || self.server_ip.is_multicast() {
            return Err(Failure::usage(format_args!(
                "found --server-ip {}, expected the address that players send to",
                self.server_ip
            ))
            .in_field("--server-ip"));
        }
        Ok(Some(LocalProcessConfig {
            output: if self.server_output {
                ChildOutput::Inherit
            } else {
                ChildOutput::Discard
            },
            ..LocalProcessConfig::new(
                program.into(),
                arguments.to_vec(),
                self.slots.clone(),
                join_file.to_owned(),
                (self.server_ip, ports),
            )
        }))
    }
}

/// The line of `--results` for an ended match.
fn line(ended: &MatchResult) -> String {
    let end = match ended.end {
        MatchEnd::Reported => "reported",
        MatchEnd::Unlisted => "unlisted",
        MatchEnd::ServerLost => "server_lost",
        MatchEnd::NotEntered => "not_entered",
        _ => "other",
    };
    json!({
        "schema": 1,
        "match_id": ended.match_id.to_string(),
        "end": end,
        "result": hex::encode(&ended.result),
    })
    .to_string()
}

/// Options of `matchmaker status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Address of its edge, as HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    http: HostPort,
    /// Timeout, seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    fn run(&self) -> Result<(), Failure> {
        let request = Request {
            line: "GET /v1/status",
            headers: &[],
            body: None,
            timeout: Duration::from_secs(self.timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = self.http.send(MATCHMAKER, request)?;
        let wrong_server = |what: &str| {
            let mut failure = client::wrong_server(MATCHMAKER, &self.http);
            failure.sentence = format!("{failure}: {what}");
            failure
        };
        match answer.status {
            200 => {}
            503 => {
                let sentence = format!("{}: the matchmaker's thread does not answer", self.http);
                return Err(Failure::new(Exit::TimedOut, sentence));
            }
            429 => {
                let sentence = format!("{}: this host asks too often", self.http);
                return Err(Failure::refused(sentence));
            }
            status => return Err(wrong_server(&status.to_string())),
        }
        let status: Value =
            serde_json::from_slice(&answer.body).map_err(|_| wrong_server("no JSON"))?;
        let hub = status.get("hub").and_then(Value::as_str);
        let hub = hub.ok_or_else(|| wrong_server("another JSON"))?;
        if self.json {
            print_line(&String::from_utf8_lossy(&answer.body))?;
        } else {
            for name in ["hub", "servers", "tickets_waiting", "matches", "players"] {
                let value = status.get(name).unwrap_or(&Value::Null);
                print_line(&format!(
                    "{name:<16} {}",
                    value.to_string().trim_matches('"')
                ))?;
            }
        }
        if hub == "up" {
            Ok(())
        } else {
            Err(Failure::new(
                Exit::CheckFailed,
                "the matchmaker has no link to its hub",
            ))
        }
    }
}

const MATCHMAKER: &str = "matchmaker";
/// A status has a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
