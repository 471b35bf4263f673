//! Limits and timeouts of a matchmaker and its edge, as options.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use matchmaker_core::{Config, TokenLifetime};

use crate::edge::{EdgeConfig, ProxyHeader, Transport};
use crate::exit::Failure;

/// Limits of the edge.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits of the HTTP edge")]
pub(super) struct EdgeLimits {
    /// Address of a trusted proxy in front; repeat for each. Without it, all clients behind a proxy
    /// count as one source.
    #[arg(long = "trusted-proxy", value_name = "IP")]
    trusted_proxies: Vec<IpAddr>,
    /// Header in which the proxy names the client; the proxy must set it or append to it.
    #[arg(long, value_enum, default_value_t = EDGE.proxy_header)]
    proxy_header: ProxyHeader,
    /// Concurrent connections.
    #[arg(long, default_value_t = EDGE.connections_max)]
    http_connections: usize,
    /// Concurrent connections of one source.
    #[arg(long, default_value_t = EDGE.connections_per_source_max)]
    http_source_connections: usize,
    /// Concurrent long polls.
    #[arg(long, default_value_t = EDGE.waits_max)]
    http_waits: usize,
    /// Concurrent long polls of one source.
    #[arg(long, default_value_t = EDGE.waits_per_source_max)]
    http_source_waits: usize,
    /// Requests per second of one source.
    #[arg(long, default_value_t = EDGE.requests_per_second)]
    http_rate: u32,
    /// Burst of requests of one source.
    #[arg(long, default_value_t = EDGE.requests_burst)]
    http_burst: u32,
    /// Longest wait of a long poll, seconds.
    #[arg(long, default_value_t = Seconds::of(EDGE.wait_max))]
    http_wait: Seconds,
    /// Time for a request's head, and again for its body, seconds.
    #[arg(long, default_value_t = Seconds::of(EDGE.read_timeout))]
    http_read_timeout: Seconds,
    /// Time for the client to read a response, seconds.
    #[arg(long, default_value_t = Seconds::of(EDGE.write_timeout))]
    http_write_timeout: Seconds,
    /// Lifetime of a connection, seconds.
    #[arg(long, default_value_t = Seconds::of(EDGE.connection_life))]
    http_connection_life: Seconds,
    /// Longest request body, bytes.
    #[arg(long, default_value_t = EDGE.body_bytes_max)]
    http_body: usize,
    /// Longest request head, bytes.
    #[arg(long, default_value_t = EDGE.head_bytes_max)]
    http_head: usize,
}

impl EdgeLimits {
    pub(super) fn config(&self, listen: SocketAddr, transport: Transport) -> EdgeConfig {
        EdgeConfig {
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_header: self.proxy_header,
            connections_max: self.http_connections,
            connections_per_source_max: self.http_source_connections,
            waits_max: self.http_waits,
            waits_per_source_max: self.http_source_waits,
            requests_per_second: self.http_rate,
            requests_burst: self.http_burst,
            wait_max: self.http_wait.span(),
            read_timeout: self.http_read_timeout.span(),
            write_timeout: self.http_write_timeout.span(),
            connection_life: self.http_connection_life.span(),
            body_bytes_max: self.http_body,
            head_bytes_max: self.http_head,
            ..EdgeConfig::new(listen, transport)
        }
    }
}

/// Limits and timeouts of the matchmaker.
#[derive(Args, Clone, Debug)]
pub(super) struct MatchLimits {
    #[command(flatten)]
    tickets: TicketLimits,
    #[command(flatten)]
    servers: ServerLimits,
}

/// Limits of tickets and matches.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = MATCH_HEADING)]
struct TicketLimits {
    /// Waiting tickets.
    #[arg(long, default_value_t = Config::default().tickets_max)]
    tickets: usize,
    /// Longest wait of a ticket.
    #[arg(long, default_value_t = Seconds::of(Config::default().ticket_ttl))]
    ticket_ttl: Seconds,
    /// Time after which a waiting ticket that is not polled expires; more than `--http-wait`.
    #[arg(long, default_value_t = Seconds::of(Config::default().ask_timeout))]
    ask_timeout: Seconds,
    /// Ended tickets that are kept for polling.
    #[arg(long, default_value_t = Config::default().ended_max)]
    ended_tickets: usize,
    /// Time for which they are kept.
    #[arg(long, default_value_t = Seconds::of(Config::default().ended_kept))]
    ended_kept: Seconds,
    /// Attempts to start a match before its tickets fail.
    #[arg(long, default_value_t = Config::default().attempts_max)]
    attempts: NonZeroU8,
    /// Time for a match to get a server.
    #[arg(
        long,
        default_value_t = Seconds::of(Config::default().allocate_timeout)
    )]
    allocate_timeout: Seconds,
    /// Time for a server to answer.
    #[arg(long, default_value_t = Seconds::of(Config::default().call_timeout))]
    call_timeout: Seconds,
    /// Concurrent matches.
    #[arg(long, default_value_t = Config::default().matches_max)]
    matches: usize,
    /// Lifetime of a token, at most 300.
    #[arg(
        long,
        default_value_t = Seconds::of(Config::default().token_lifetime.get())
    )]
    token_lifetime: Seconds,
}

/// Limits of game servers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = MATCH_HEADING)]
struct ServerLimits {
    /// Registered game servers.
    #[arg(long, default_value_t = Config::default().servers_max)]
    servers: usize,
    /// Time after which a game server without a heartbeat is lost.
    #[arg(long, default_value_t = Seconds::of(Config::default().lease))]
    lease: Seconds,
    /// Interval of heartbeats.
    #[arg(long, default_value_t = Seconds::of(Config::default().heartbeat))]
    heartbeat: Seconds,
    /// Time for game servers to return after a start or after the hub is back.
    #[arg(long, default_value_t = Seconds::of(Config::default().recovery))]
    recovery: Seconds,
    /// Time for a process to register.
    #[arg(long, default_value_t = Seconds::of(Config::default().ready_timeout))]
    ready_timeout: Seconds,
    /// Time for a process to end before it is told again.
    #[arg(long, default_value_t = Seconds::of(Config::default().stop_timeout))]
    stop_timeout: Seconds,
    /// Time for which a process beyond the warm ones stays unused.
    #[arg(
        long,
        default_value_t = Seconds::of(Config::default().unused_timeout)
    )]
    unused_timeout: Seconds,
}

impl MatchLimits {
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let Self { tickets, servers } = self;
        let token_lifetime = TokenLifetime::new(tickets.token_lifetime.span());
        if servers.lease.0 < servers.heartbeat.0.saturating_mul(2) {
            return Err(Failure::usage(format_args!(
                "a lease of {} s is shorter than two heartbeats of {} s",
                servers.lease, servers.heartbeat
            )));
        }
        let mut config = Config::default();
        config.tickets_max = tickets.tickets;
        config.ticket_ttl = tickets.ticket_ttl.span();
        config.ask_timeout = tickets.ask_timeout.span();
        config.ended_max = tickets.ended_tickets;
        config.ended_kept = tickets.ended_kept.span();
        config.attempts_max = tickets.attempts;
        config.allocate_timeout = tickets.allocate_timeout.span();
        config.call_timeout = tickets.call_timeout.span();
        config.matches_max = tickets.matches;
        config.token_lifetime =
            token_lifetime.ok_or_else(|| Failure::usage("a token lives for 1 to 300 seconds"))?;
        config.servers_max = servers.servers;
        config.lease = servers.lease.span();
        config.heartbeat = servers.heartbeat.span();
        config.recovery = servers.recovery.span();
        config.ready_timeout = servers.ready_timeout.span();
        config.stop_timeout = servers.stop_timeout.span();
        config.unused_timeout = servers.unused_timeout.span();
        Ok(config)
    }
}

const MATCH_HEADING: &str = "Limits of the matchmaker (times in seconds)";

/// Whole seconds, 1 to 86,400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seconds(u64);

impl Seconds {
    const fn of(span: Duration) -> Self {
        Self(span.as_secs())
    }

    const fn span(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let secs = text.parse().ok().filter(|secs| (1..=86_400).contains(secs));
        secs.map(Self).ok_or("a time is 1 to 86400 seconds")
    }
}

const EDGE: EdgeConfig = EdgeConfig::new(
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    Transport::PlainHttp,
);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        edge: EdgeLimits,
        #[command(flatten)]
        matches: MatchLimits,
    }

    fn listen() -> SocketAddr {
        "127.0.0.1:80".parse().unwrap()
    }

    fn read(args: &[&str]) -> (EdgeConfig, Result<Config, Failure>) {
        let args = ["matchmaker"].iter().chain(args);
        let line = Line::try_parse_from(args).unwrap();
        let edge = line.edge.config(listen(), Transport::PlainHttp);
        (edge, line.matches.config())
    }

    #[test]
    fn without_options_the_defaults_apply() {
        let (edge, config) = read(&[]);
        assert_eq!(edge, EdgeConfig::new(listen(), Transport::PlainHttp));
        assert_eq!(config, Ok(Config::default()));
    }

    #[test]
    fn every_option_sets_its_limit() {
        let (edge, config) = read(&[
            "--trusted-proxy=192.0.2.1",
            "--trusted-proxy=::1",
            "--proxy-header=forwarded",
            "--http-connections=1",
            "--http-source-connections=2",
            "--http-waits=3",
            "--http-source-waits=4",
            "--http-rate=5",
            "--http-burst=6",
            "--http-wait=7",
            "--http-read-timeout=8",
            "--http-body=9",
            "--http-head=10",
            "--tickets=11",
            "--ticket-ttl=12",
            "--ask-timeout=13",
            "--ended-tickets=14",
            "--ended-kept=15",
            "--attempts=16",
            "--allocate-timeout=17",
            "--call-timeout=18",
            "--matches=19",
            "--token-lifetime=20",
            "--servers=21",
            "--lease=50",
            "--heartbeat=23",
            "--recovery=24",
            "--ready-timeout=25",
            "--stop-timeout=26",
            "--unused-timeout=27",
        ]);
        let mut expected = EdgeConfig::new(listen(), Transport::PlainHttp);
        expected.trusted_proxies = ["192.0.2.1", "::1"].map(|ip| ip.parse().unwrap()).into();
        expected.proxy_header = ProxyHeader::Forwarded;
        expected.connections_max = 1;
        expected.connections_per_source_max = 2;
        expected.waits_max = 3;
        expected.waits_per_source_max = 4;
        expected.requests_per_second = 5;
        expected.requests_burst = 6;
        expected.wait_max = Duration::from_secs(7);
        expected.read_timeout = Duration::from_secs(8);
        expected.body_bytes_max = 9;
        expected.head_bytes_max = 10;
        assert_eq!(edge, expected);
        let mut expected = Config::default();
        expected.tickets_max = 11;
        expected.ticket_ttl = Duration::from_secs(12);
        expected.ask_timeout = Duration::from_secs(13);
        expected.ended_max = 14;
        expected.ended_kept = Duration::from_secs(15);
        expected.attempts_max = NonZeroU8::new(16).unwrap();
        expected.allocate_timeout = Duration::from_secs(17);
        expected.call_timeout = Duration::from_secs(18);
        expected.matches_max = 19;
        expected.token_lifetime = TokenLifetime::new(Duration::from_secs(20)).unwrap();
        expected.servers_max = 21;
        expected.lease = Duration::from_secs(50);
        expected.heartbeat = Duration::from_secs(23);
        expected.recovery = Duration::from_secs(24);
        expected.ready_timeout = Duration::from_secs(25);
        expected.stop_timeout = Duration::from_secs(26);
        expected.unused_timeout = Duration::from_secs(27);
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn impossible_limits_are_rejected() {
        for args in [
            "--lease=0",
            "--lease=86401",
            "--attempts=0",
            "--proxy-header=via",
        ] {
            assert!(
                Line::try_parse_from(["matchmaker", args]).is_err(),
                "{args}"
            );
        }
        assert!(read(&["--token-lifetime=301"]).1.is_err());
        assert!(read(&["--lease=19"]).1.is_err());
    }
}
