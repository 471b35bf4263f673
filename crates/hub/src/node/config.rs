//! Configuration of a node.

use core::time::Duration;

use crate::name::Name;
use crate::role::Role;

/// Role, limits and timeouts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Role to join with; a game node.
    pub role: Role,
    /// Services provided, at most 16; none.
    pub services: Vec<Name>,
    /// Whether to watch other nodes; yes.
    pub watch_nodes: bool,
    /// Whether to watch players of other nodes; no.
    pub watch_players: bool,
    /// Interval of heartbeats; 1 s.
    pub heartbeat: Duration,
    /// Idle timeout: time without a whole record; 3 s. A link must carry at least 22 KiB/s, so that
    /// the longest record fits.
    pub silence_max: Duration,
    /// Timeout of a dial; 5 s.
    pub dial_timeout: Duration,
    /// First redial delay, doubled each time; 50 ms.
    pub redial_min: Duration,
    /// Longest redial delay; 500 ms, so that all nodes rejoin within a second of a hub restart.
    pub redial_max: Duration,
    /// Redial delay if the hub rejects this node; 5 s.
    pub refused_wait: Duration,
    /// Mails not confirmed as stored; 4,096.
    pub mails_max: usize,
    /// Bytes of these mails; 16 MiB.
    pub mail_bytes_max: usize,
    /// Calls, replies and broadcasts that wait to be written, bytes; 4 MiB.
    pub outbox_bytes_max: usize,
    /// Open calls; 1,024.
    pub calls_max: usize,
    /// Events queued for the application; 16,384. Beyond it, requests are answered with `Busy`, and
    /// broadcasts are dropped and counted.
    pub events_max: usize,
    /// Claimed players; 65,536.
    pub players_max: usize,
    /// Interval at which counts are sent; 1 s.
    pub counts_interval: Duration,
    /// Keys counted per interval; 1,024. Increases of further keys are dropped and counted.
    pub count_keys_max: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            role: Role::GameNode,
            services: Vec::new(),
            watch_nodes: true,
            watch_players: false,
            heartbeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(3),
            dial_timeout: Duration::from_secs(5),
            redial_min: Duration::from_millis(50),
            redial_max: Duration::from_millis(500),
            refused_wait: Duration::from_secs(5),
            mails_max: 4_096,
            mail_bytes_max: 16 << 20,
            outbox_bytes_max: 4 << 20,
            calls_max: 1_024,
            events_max: 16_384,
            players_max: 65_536,
            counts_interval: Duration::from_secs(1),
            count_keys_max: 1_024,
        }
    }
}
