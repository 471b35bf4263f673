//! Counters of a node.

use serde::Serialize;

use crate::route_request::Refused;

/// Hop frames by outcome. A received frame counts once: as dropped, as arrived, or, if it is
/// forwarded, as sealed or as dropped after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FrameStats {
    /// Sealed, or tagged, and queued to be sent: passed on, or of this node's own flows.
    pub sealed: u64,
    /// Opened, for a flow of this node.
    pub arrived: u64,
    /// Dropped: shorter than a frame can be.
    pub truncated: u64,
    /// Dropped: longer than a link carries.
    pub oversize: u64,
    /// Dropped: a first byte that has no meaning yet.
    pub unknown_kind: u64,
    /// Dropped: what is left of a trunk where the lengths in it do not fit, or a frame is none.
    pub bad_trunk: u64,
    /// Dropped: a field out of range.
    pub malformed: u64,
    /// Dropped: protected by a tag only, for a label that does not take this.
    pub tag_only: u64,
    /// Dropped: sealed, for a label that takes frames by tag only.
    pub not_tag_only: u64,
    /// Dropped: no such label, or an earlier generation of its slot.
    pub unknown_label: u64,
    /// Dropped: the label had ended.
    pub expired: u64,
    /// Dropped: from elsewhere than the link that the label names.
    pub wrong_link: u64,
    /// Dropped: the label was given out, but leads nowhere yet.
    pub not_bound: u64,
    /// Dropped: the label passed this number before, or it is too old to say.
    pub replayed: u64,
    /// Dropped: changed on the way, or sealed under another key.
    pub wrong_tag: u64,
    /// Dropped: over the rate of its label.
    pub over_rate: u64,
    /// Dropped: over the rate of all labels of the same owner.
    pub over_owner_rate: u64,
    /// Dropped: it was to go on, and had made as many hops as a route may have.
    pub hops_spent: u64,
    /// Dropped: the next hop's link is down.
    pub no_link: u64,
    /// Dropped: the sealer did not take the number.
    pub not_sealed: u64,
    /// Dropped: too much waits to be sent.
    pub outbox_full: u64,
}

impl FrameStats {
    /// Counts the rest of an invalid trunk.
    pub(crate) const fn count_bad_trunk(&mut self) {
        self.bad_trunk = self.bad_trunk.saturating_add(1);
    }

    /// Returns the sums of both.
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

    /// All zero.
    pub(crate) const NONE: Self = Self {
        sealed: 0,
        arrived: 0,
        truncated: 0,
        oversize: 0,
        unknown_kind: 0,
        bad_trunk: 0,
        malformed: 0,
        tag_only: 0,
        not_tag_only: 0,
        unknown_label: 0,
        expired: 0,
        wrong_link: 0,
        not_bound: 0,
        replayed: 0,
        wrong_tag: 0,
        over_rate: 0,
        over_owner_rate: 0,
        hops_spent: 0,
        no_link: 0,
        not_sealed: 0,
        outbox_full: 0,
    };

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

/// What else a node counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStats {
    /// Times that flows to a far end took another path.
    pub route_changes: u64,
    /// Times that a path took longer than link state said for half a minute, and was held to that.
    pub paths_refuted: u64,
    /// Times that it was told that this node does not keep up.
    pub overloads: u64,
    /// Times that the data of a path did worse than its probes: a relay on it drops, thins or delays what it carries.
    pub paths_failed_data: u64,
    /// Set-ups of paths that failed.
    pub setups_failed: u64,
    /// Requests for labels that were sent.
    pub label_requests: u64,
    /// Times that all flows with a far end were looked through for labels that they lack.
    pub label_searches: u64,
    /// Flows of other entries that were refused: too many of late.
    pub opens_refused: u64,
    /// Flows of other entries that an exit did not take because players of the same /24 or /48 of that entry
    /// have their share of the places.
    pub shares_held: u64,
    /// Requests of other nodes that were refused, by reason.
    pub requests_refused: RefusedRequests,
    /// Labels that others gave back before they expired.
    pub labels_given_back: u64,
    /// Labels that others gave back and did not hold, by then or ever, or too many of late: ignored.
    pub releases_refused: u64,
    /// Answers to requests that nobody waits for.
    pub stray_replies: u64,
    /// Times that the driver came over 250 ms late: what was silent meanwhile is not blamed for it.
    pub stalls: u64,
    /// Datagrams of others' sessions that were passed on.
    pub detoured: u64,
    /// Datagrams of sessions that were not passed on, or not believed.
    pub detours_refused: u64,
    /// Sessions closed because there were as many neighbours, or nodes known of, as may be.
    pub links_refused: u64,
    /// Sessions closed because nobody here wants or uses them, or to make room.
    pub links_parted: u64,
    /// Nodes forgotten that were gone for long.
    pub nodes_forgotten: u64,
    /// Dials begun.
    pub dials: u64,
    /// Dials and sessions that others ended for want of a place.
    pub dials_refused: u64,
    /// Probes of neighbours, and answers to probes of ours.
    pub probes: u64,
    /// Messages of neighbours that break the format.
    pub messages_malformed: u64,
    /// Messages that came by a session that has ended.
    pub messages_astray: u64,
    /// Messages that a session's queue had no room for.
    pub messages_unsent: u64,
    /// Completions of unknown commands.
    pub stray_completions: u64,
    /// Events that the application did not take in time.
    pub events_dropped: u64,
    /// Times that the provider had no randomness.
    pub no_entropy: u64,
    /// Frames for flows of this node that came before, by another path or twice.
    pub flow_duplicates: u64,
    /// Frames for flows of this node that did not open.
    pub flow_forged: u64,
    /// Frames for flows of this node that have ended.
    pub flow_unknown: u64,
    /// Datagrams handed to players and game servers.
    pub delivered: u64,
    /// Datagrams for players and game servers dropped because too much waits to be sent.
    pub outbox_full: u64,
    /// Datagrams of players and servers longer than 1,472 bytes, dropped.
    pub too_big: u64,
    /// Datagrams of players and servers over [`Config::flow_rate`](crate::Config::flow_rate), dropped.
    pub over_flow_rate: u64,
    /// Datagrams that came before their flow had a path or socket, and found no room to wait.
    pub early_dropped: u64,
    /// Datagrams of players and servers sent to the other end of their flow.
    pub carried: u64,
    /// Datagrams of players and servers that wait for their flow's path, or waited.
    pub waited: u64,
    /// Datagrams of players for whom there was no flow to be had.
    pub refused_players: u64,
    /// Of them, those for whom no exit of their game could be reached.
    pub no_exit: u64,
    /// Datagrams at ports of games behind proxies: a header of somebody who is no proxy, a bad one, one with
    /// an address where no single host is, or none where one must be.
    pub headers_refused: u64,
    /// Measurements of game servers that were begun.
    pub server_probes: u64,
    /// Of them, those that failed, or were not answered in time.
    pub server_probes_failed: u64,
    /// Edges to game servers told by exits that may serve the game.
    pub edges_heard: u64,
    /// Edges told by nodes that are no exit of the game: ignored.
    pub edges_refused: u64,
    /// Edges to servers of games that this node is no entry of: ignored.
    pub edges_unknown: u64,
    /// Replies over the ration of a source that has not proved to receive.
    pub rationed: u64,
    /// Datagrams to an upstream socket from elsewhere than its server, as far as its driver hands them
    /// over: one whose sockets are connected does not.
    pub strangers: u64,
}

/// Requests refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedRequests {
    /// Not for whoever asked.
    pub policy: u64,
    /// No labels left.
    pub full: u64,
    /// Too many of late.
    pub too_many: u64,
    /// No session with the hop before or behind.
    pub no_link: u64,
    /// A label not reserved, or bound.
    pub bad_label: u64,
    /// A grant that does not hold.
    pub bad_grant: u64,
    /// A next label that was bound before.
    pub label_taken: u64,
    /// A flow that the session does not have.
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
