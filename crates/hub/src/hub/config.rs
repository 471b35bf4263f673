//! Limits and times of a hub.

use core::time::Duration;

/// Limits and times of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubConfig {
    /// Connections at once; 4,096. One more is closed as it opens.
    pub links_max: usize,
    /// Connections of one node at once; 4: the one that it uses, one that has yet to be noticed as
    /// dead, and the next.
    pub node_links_max: usize,
    /// Players with a claim; 1 million, about 200 bytes each.
    pub players_max: usize,
    /// Players that one node has claimed; 65,536.
    pub node_players_max: usize,
    /// What may wait to be written to one link, bytes; 4 MiB. Broadcasts have half of it, requests
    /// and answers all; what is beyond is dropped, refused or fails. A link that makes twice as
    /// much of what cannot be dropped is ended. Requests of one node that wait for their answers
    /// take half of it.
    pub link_bytes_max: usize,
    /// Mail that was given to one node and not acknowledged, and room for what is being read for
    /// it, bytes; 1 MiB. Beyond it a player that has acknowledged all it was given still gets one
    /// mail at a time: others that acknowledge nothing slow it down, and do not stop it.
    pub unacknowledged_bytes_max: usize,
    /// The same that was given to one player, bytes; 64 KiB. A longer mail is given alone.
    pub unacknowledged_player_bytes_max: usize,
    /// Mails that were given to one player and not acknowledged; 64.
    pub unacknowledged_mails_max: usize,
    /// Commands that the store has and has not completed; 1,024. Reads and acknowledgements have
    /// half of them.
    pub ops_in_flight: usize,
    /// Bodies of mail on their way to disk, bytes; 16 MiB. Senders of more are told `Busy`, each as
    /// soon as it has as much under way as is left for all.
    pub store_bytes_in_flight: usize,
    /// Calls that one node has open; 1,024.
    pub calls_max: usize,
    /// Longest that a call may wait; 60 s.
    pub call_timeout_max: Duration,
    /// A connection that has not joined by then is ended; 5 s.
    pub join_timeout: Duration,
    /// A link from which no whole record came for so long is ended; 5 s. Nodes send a heartbeat each
    /// second. It sets how slow a link from a node may be: 13 KiB/s for the longest record.
    pub silence_max: Duration,
    /// How long the players of a node whose link has ended stay its own; 10 s.
    pub lease: Duration,
    /// How long mail is kept whose sender names no time; 30 days.
    pub mail_ttl: Duration,
    /// How long a step of the wall clock by more than a minute must stand until it is believed; 6 h.
    /// Mail whose time a wrong step would end is gone for good.
    pub clock_step_wait: Duration,
    /// When a sender that was told `Busy` shall try again; 100 ms.
    pub retry_after: Duration,
    /// What happens when a second node claims a player.
    pub duplicate_claim: DuplicateClaim,
    /// Changes of presence that wait for one watcher; 4,096. One that is further behind is told
    /// everything anew.
    pub watch_changes_max: usize,
    /// Events that wait for the application; 1,024. Further ones are dropped and counted.
    pub events_max: usize,
}

/// What happens when a second node claims a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DuplicateClaim {
    /// It gets the player; the first is told.
    NewestWins,
    /// It is told that the first has the player.
    Refuse,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            links_max: 4_096,
            node_links_max: 4,
            players_max: 1_000_000,
            node_players_max: 65_536,
            link_bytes_max: 4 << 20,
            unacknowledged_bytes_max: 1 << 20,
            unacknowledged_player_bytes_max: 64 << 10,
            unacknowledged_mails_max: 64,
            ops_in_flight: 1_024,
            store_bytes_in_flight: 16 << 20,
            calls_max: 1_024,
            call_timeout_max: Duration::from_secs(60),
            join_timeout: Duration::from_secs(5),
            silence_max: Duration::from_secs(5),
            lease: Duration::from_secs(10),
            mail_ttl: Duration::from_secs(30 * 86_400),
            clock_step_wait: Duration::from_secs(6 * 3_600),
            retry_after: Duration::from_millis(100),
            duplicate_claim: DuplicateClaim::NewestWins,
            watch_changes_max: 4_096,
            events_max: 1_024,
        }
    }
}
