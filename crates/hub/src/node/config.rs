//! What a node is, and its limits and times.

use core::time::Duration;

use crate::name::Name;
use crate::role::Role;

/// What a node is, and its limits and times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// What it joins as; a game node.
    pub role: Role,
    /// What it serves, at most 16 names; none.
    pub services: Vec<Name>,
    /// Whether it wants to hear of other nodes; yes.
    pub watch_nodes: bool,
    /// Whether it wants to hear of players of other nodes; no.
    pub watch_players: bool,
    /// How often it says that it lives; 1 s.
    pub heartbeat: Duration,
    /// A link from which no whole record came for so long is given up; 3 s. It sets how slow a link
    /// to a node may be: 22 KiB/s for the longest record.
    pub silence_max: Duration,
    /// A dial that has not ended by then is given up; 5 s.
    pub dial_timeout: Duration,
    /// First wait before dialling again, doubled from try to try; 50 ms.
    pub redial_min: Duration,
    /// Longest wait before dialling again; 500 ms, so that after a restart of the hub all are back
    /// within a second.
    pub redial_max: Duration,
    /// Wait before dialling again where the hub does not know this node; 5 s.
    pub refused_wait: Duration,
    /// Mails that wait to be on the hub's disk; 4,096.
    pub mails_max: usize,
    /// Their bodies together, bytes; 16 MiB.
    pub mail_bytes_max: usize,
    /// Live records that wait to be written, bytes; 4 MiB.
    pub outbox_bytes_max: usize,
    /// Calls that wait for their reply; 1,024.
    pub calls_max: usize,
    /// Events that wait for the application; 16,384. Requests beyond it are answered as busy,
    /// broadcasts dropped and counted.
    pub events_max: usize,
    /// Players at once; 65,536.
    pub players_max: usize,
    /// How often counts are sent; 1 s.
    pub counts_interval: Duration,
    /// Keys that are counted between two sends; 1,024. Increases of further ones are dropped and
    /// counted.
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
