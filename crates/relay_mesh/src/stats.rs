//! Counters of a node.

use serde::Serialize;

use crate::route_request::Refused;

/// Hop frames by outcome. A received frame counts once: as dropped, as arrived, or, if it is
/// forwarded, as sealed or as dropped after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FrameStats {
    /// Sealed or tagged, and queued for sending: forwarded, or of this node's own flows.
    pub sealed: u64,
    /// Decrypted, for a flow of this node.
    pub arrived: u64,
    /// Dropped: shorter than a frame can be.
    pub truncated: u64,
    /// Dropped: longer than a link allows.
    pub oversize: u64,
    /// Dropped: its first byte is not assigned.
    pub unknown_kind: u64,
    /// Dropped: the rest of a trunk with a bad length or an invalid frame.
    pub bad_trunk: u64,
    /// Dropped: a field out of range.
    pub malformed: u64,
    /// Dropped: protected by a tag only, and its label requires a sealed frame.
    pub tag_only: u64,
    /// Dropped: sealed, and its label requires a frame with a tag only.
    pub not_tag_only: u64,
    /// Dropped: no such label, or an earlier generation of its slot.
    pub unknown_label: u64,
    /// Dropped: its label had expired.
    pub expired: u64,
    /// Dropped: not from the link that its label belongs to.
    pub wrong_link: u64,
    /// Dropped: its label is allocated but not bound yet.
    pub not_bound: u64,
    /// Dropped: the label has seen its number, or it is older than the replay window.
    pub replayed: u64,
    /// Dropped: modified, or sealed with another key.
    pub wrong_tag: u64,
    /// Dropped: its label's rate limit was exceeded.
    pub over_rate: u64,
    /// Dropped: the rate limit of all labels of one owner was exceeded.
    pub over_owner_rate: u64,
    /// Dropped: it was to be forwarded, and had reached the maximum number of hops.
    pub hops_spent: u64,
    /// Dropped: the next hop's link is down.
    pub no_link: u64,
    /// Dropped: the sealer rejected its number.
    pub not_sealed: u64,
    /// Dropped: the send queue was full.
    pub outbox_full: u64,
}

impl FrameStats {
    pub(crate) const fn count_bad_trunk(&mut self) {
        self.bad_trunk = self.bad_trunk.saturating_add(1);
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            sealed: self.sealed.saturating_add(other.sealed),
            arrived: self.arrived.saturating_add(other.arrived),
            truncated: self.truncated.saturating_add(other.truncated),
            oversize: self.oversize.saturating_add(other.oversize),
            unknown_kind: self.unknown_kind.saturating_add(other.unknown_kind),
            bad_trunk: self.bad_trunk.saturating_add(other.bad_trunk),
            malformed: self.malformed.saturating_add(other.malformed),
            tag_only: self.tag_only.saturating_add(other.tag_only),
            not_tag_only: self.not_tag_only.saturating_add(other.not_tag_only),
            unknown_label: self.unknown_label.saturating_add(other.unknown_label),
            expired: self.expired.saturating_add(other.expired),
            wrong_link: self.wrong_link.saturating_add(other.wrong_link),
            not_bound: self.not_bound.saturating_add(other.not_bound),
            replayed: self.replayed.saturating_add(other.replayed),
            wrong_tag: self.wrong_tag.saturating_add(other.wrong_tag),
            over_rate: self.over_rate.saturating_add(other.over_rate),
            over_owner_rate: self.over_owner_rate.saturating_add(other.over_owner_rate),
            hops_spent: self.hops_spent.saturating_add(other.hops_spent),
            no_link: self.no_link.saturating_add(other.no_link),
            not_sealed: self.not_sealed.saturating_add(other.not_sealed),
            outbox_full: self.outbox_full.saturating_add(other.outbox_full),
        }
    }

    /// Returns the number of received frames that were dropped before decryption, or over their
    /// rate.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        let Self {
            truncated,
            oversize,
            unknown_kind,
            bad_trunk,
            malformed,
            tag_only,
            not_tag_only,
            unknown_label,
            expired,
            wrong_link,
            not_bound,
            replayed,
            wrong_tag,
            over_rate,
            over_owner_rate,
            hops_spent,
            // Not received frames, or not only.
            sealed: _,
            arrived: _,
            no_link: _,
            not_sealed: _,
            outbox_full: _,
        } = *self;
        truncated
            .saturating_add(oversize)
            .saturating_add(unknown_kind)
            .saturating_add(bad_trunk)
            .saturating_add(malformed)
            .saturating_add(tag_only)
            .saturating_add(not_tag_only)
            .saturating_add(unknown_label)
            .saturating_add(expired)
            .saturating_add(wrong_link)
            .saturating_add(not_bound)
            .saturating_add(replayed)
            .saturating_add(wrong_tag)
            .saturating_add(over_rate)
            .saturating_add(over_owner_rate)
            .saturating_add(hops_spent)
    }
}

/// Other counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStats {
    /// Path changes of the flows to a remote end.
    pub route_changes: u64,
    /// Times that a path's cost was raised above its link state, which was too low for 30 s.
    pub paths_refuted: u64,
    /// Overloads reported to this node.
    pub overloads: u64,
    /// Times that a path lost or delayed data more than probes.
    pub paths_failed_data: u64,
    /// Failed path setups.
    pub setups_failed: u64,
    /// Label requests sent.
    pub label_requests: u64,
    /// Searches of all flows to a remote end for missing labels.
    pub label_searches: u64,
    /// Flows of other entries refused by the rate limit.
    pub opens_refused: u64,
    /// Flows of other entries refused because a /24 or /48 of players holds its share of the slots.
    pub shares_held: u64,
    /// Requests of other nodes refused, by reason.
    pub requests_refused: RefusedRequests,
    /// Labels that other nodes released before they expired.
    pub labels_given_back: u64,
    /// Releases ignored: of labels that the sender did not hold, or over the rate limit.
    pub releases_refused: u64,
    /// Replies to unknown requests.
    pub stray_replies: u64,
    /// Times that the driver called over 250 ms late; silent peers are not blamed for it.
    pub stalls: u64,
    /// Session datagrams forwarded for other nodes.
    pub detoured: u64,
    /// Session datagrams not forwarded, or not accepted.
    pub detours_refused: u64,
    /// Sessions closed because the limit of neighbours or of known nodes was reached.
    pub links_refused: u64,
    /// Sessions closed because this node did not need them, or to make room.
    pub links_parted: u64,
    /// Nodes removed after a long absence.
    pub nodes_forgotten: u64,
    /// Dials started.
    pub dials: u64,
    /// Dials and sessions that the peer rejected or closed because it was full.
    pub dials_refused: u64,
    /// Probes received, and answers to own probes.
    pub probes: u64,
    /// Malformed messages of neighbours.
    pub messages_malformed: u64,
    /// Messages received on a session that had ended.
    #[serde(rename = "messages_astray")]
    pub messages_after_end: u64,
    /// Messages dropped because the session's queue was full.
    pub messages_unsent: u64,
    /// Completions of unknown commands.
    pub stray_completions: u64,
    /// Events dropped because the application did not poll them in time.
    pub events_dropped: u64,
    /// Failures of the provider's source of randomness.
    pub no_entropy: u64,
    /// Duplicate frames for flows of this node, by another path or replayed.
    pub flow_duplicates: u64,
    /// Frames for flows of this node that failed decryption.
    pub flow_forged: u64,
    /// Frames for ended flows of this node.
    pub flow_unknown: u64,
    /// Datagrams delivered to players and game servers.
    pub delivered: u64,
    /// Datagrams to players and game servers dropped because the send queue was full.
    pub outbox_full: u64,
    /// Datagrams of players and servers dropped because they were longer than 1,472 bytes.
    pub too_big: u64,
    /// Datagrams of players and servers dropped over
    /// [`Config::flow_rate`](crate::Config::flow_rate).
    pub over_flow_rate: u64,
    /// Datagrams dropped because their flow had no path or socket yet and the queue was full.
    pub early_dropped: u64,
    /// Datagrams of players and servers sent to the other end of their flow.
    pub carried: u64,
    /// Datagrams of players and servers queued until their flow had a path.
    pub waited: u64,
    /// Datagrams of players that got no flow.
    pub refused_players: u64,
    /// Of them, those whose game had no reachable exit.
    pub no_exit: u64,
    /// Datagrams at ports of games behind proxies dropped for their header: from an untrusted
    /// source, malformed, with an address that is no single host, or missing where it is required.
    pub headers_refused: u64,
    /// Measurements of game servers started.
    pub server_probes: u64,
    /// Of them, those that failed or timed out.
    pub server_probes_failed: u64,
    /// Game edges received from exits that may serve the game.
    #[serde(rename = "edges_heard")]
    pub edges_received: u64,
    /// Game edges of nodes that are no exit of the game: ignored.
    pub edges_refused: u64,
    /// Game edges of games of which this node is no entry: ignored.
    pub edges_unknown: u64,
    /// Replies dropped over the budget of an unproved source.
    #[serde(rename = "rationed")]
    pub over_reply_budget: u64,
    /// Datagrams at an upstream socket that are not from its server.
    pub strangers: u64,
}

/// Requests refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedRequests {
    /// The requester is not allowed to.
    pub policy: u64,
    /// No labels are free.
    pub full: u64,
    /// Over the rate limit.
    pub too_many: u64,
    /// No session with the previous or next hop.
    pub no_link: u64,
    /// The label is not reserved, or is already bound.
    pub bad_label: u64,
    /// The grant is invalid.
    pub bad_grant: u64,
    /// The next label was already bound.
    pub label_taken: u64,
    /// The flow does not exist in the session.
    pub unknown_flow: u64,
}

impl RefusedRequests {
    pub(crate) const fn count(&mut self, why: Refused) {
        let counter = match why {
            Refused::Policy => &mut self.policy,
            Refused::Full => &mut self.full,
            Refused::TooMany => &mut self.too_many,
            Refused::NoLink => &mut self.no_link,
            Refused::BadLabel => &mut self.bad_label,
            Refused::BadGrant => &mut self.bad_grant,
            Refused::LabelTaken => &mut self.label_taken,
            Refused::UnknownFlow => &mut self.unknown_flow,
        };
        *counter = counter.saturating_add(1);
    }
}
