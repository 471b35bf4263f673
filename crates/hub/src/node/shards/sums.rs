//! Messages that consist of one part for each of several hubs, until the last part has its verdict.

use std::collections::BTreeMap;

use wire::ClientId;

use super::super::NodeEvent;
use crate::field::{GroupRequest, LiveSeq, SenderSeq};
use crate::record::{GroupError, LiveOutcome, MailRefusal, PlayerIds};

/// What waits for parts, by its number, and the parts by link and number there.
#[derive(Debug)]
pub(super) struct Sums<S> {
    last: u64,
    parts: BTreeMap<(u8, u64), u64>,
    open: BTreeMap<u64, (usize, S)>,
}

impl<S> Default for Sums<S> {
    fn default() -> Self {
        Self {
            last: 0,
            parts: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }
}

impl<S> Sums<S> {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Adds a sum with at least one part; returns its number.
    pub(super) fn begin(&mut self, parts: &[(u8, u64)], sum: S) -> u64 {
        self.last = self.last.saturating_add(1);
        for part in parts {
            self.parts.insert(*part, self.last);
        }
        self.open.insert(self.last, (parts.len(), sum));
        self.last
    }

    pub(super) fn has_part(&self, part: (u8, u64)) -> bool {
        self.parts.contains_key(&part)
    }

    /// Ends a part with `add`; returns the sum and its number if it was the last part.
    pub(super) fn end(&mut self, part: (u8, u64), add: impl FnOnce(&mut S)) -> Option<(u64, S)> {
        let number = self.parts.remove(&part)?;
        let (left, sum) = self.open.get_mut(&number)?;
        add(sum);
        *left = left.saturating_sub(1);
        if *left > 0 {
            return None;
        }
        self.open.remove(&number).map(|(_, sum)| (number, sum))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const PART: usize = size_of::<((u8, u64), u64)>() + super::super::ENTRY;
        let each = size_of::<(u64, (usize, S))>().saturating_add(super::super::ENTRY);
        let parts = self.parts.len().saturating_mul(PART);
        parts.saturating_add(self.open.len().saturating_mul(each))
    }
}

/// The verdict on a mail, or on a part of it.
#[derive(Debug)]
pub(super) enum MailPart {
    Stored,
    Refused(MailRefusal),
    Partial {
        stored: u16,
        refused_count: u16,
        refused: Vec<ClientId>,
        reason: MailRefusal,
    },
}

impl MailPart {
    pub(super) fn into_event(self, seq: SenderSeq) -> NodeEvent {
        match self {
            Self::Stored => NodeEvent::MailStored(seq),
            Self::Refused(reason) => NodeEvent::MailRefused(seq, reason),
            Self::Partial {
                stored,
                refused_count,
                refused,
                reason,
            } => NodeEvent::MailPartRefused {
                seq,
                stored,
                refused_count,
                refused,
                reason,
            },
        }
    }
}

/// Verdicts on the parts of a mail.
#[derive(Debug, Default)]
pub(super) struct MailSum {
    /// The players of each part; none for a group.
    players: BTreeMap<u8, PlayerIds>,
    stored: u16,
    is_stored: bool,
    refused: Vec<ClientId>,
    refused_count: u16,
    reason: Option<MailRefusal>,
}

impl MailSum {
    pub(super) fn new(players: BTreeMap<u8, PlayerIds>) -> Self {
        Self {
            players,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, link: u8, part: MailPart) {
        match part {
            MailPart::Stored => self.on_stored(link),
            MailPart::Refused(reason) => self.on_refused(link, reason),
            MailPart::Partial {
                stored,
                refused_count,
                refused,
                reason,
            } => {
                self.is_stored = true;
                self.stored = self.stored.saturating_add(stored);
                self.refused_count = self.refused_count.saturating_add(refused_count);
                self.refused.extend(refused);
                self.reason.get_or_insert(reason);
            }
        }
    }

    fn on_stored(&mut self, link: u8) {
        self.is_stored = true;
        let players = self.players.get(&link).map_or(0, |ids| ids.list().len());
        self.stored = self.stored.saturating_add(count(players));
    }

    fn on_refused(&mut self, link: u8, reason: MailRefusal) {
        // A hub without a member of the group has nothing to store.
        if reason == MailRefusal::NoMember {
            return;
        }
        self.reason.get_or_insert(reason);
        if let Some(players) = self.players.get(&link) {
            let before = self.refused.len();
            self.refused.extend(players.list().iter());
            let more = self.refused.len().saturating_sub(before);
            self.refused_count = self.refused_count.saturating_add(count(more));
        }
    }

    pub(super) fn into_event(mut self, seq: SenderSeq) -> NodeEvent {
        match self.reason {
            None if self.is_stored => NodeEvent::MailStored(seq),
            None => NodeEvent::MailRefused(seq, MailRefusal::NoMember),
            Some(reason) if !self.is_stored => NodeEvent::MailRefused(seq, reason),
            Some(reason) => {
                self.refused.sort_unstable();
                NodeEvent::MailPartRefused {
                    seq,
                    // Those of a group are not counted by a hub that has stored or rejected it for all.
                    stored: self.stored.max(1),
                    refused_count: self.refused_count.max(1),
                    refused: self.refused,
                    reason,
                }
            }
        }
    }
}

/// Outcomes of the parts of a live message.
#[derive(Debug, Default)]
pub(super) struct LiveSum {
    outcome: LiveOutcome,
    is_unknown: bool,
}

impl LiveSum {
    /// Counts receivers on a hub that does not take the message now.
    pub(super) fn add_busy(&mut self, receivers: usize) {
        self.outcome.busy = self.outcome.busy.saturating_add(count(receivers));
    }

    pub(super) const fn add(&mut self, part: Option<LiveOutcome>) {
        match part {
            Some(part) => self.outcome = sum(self.outcome, part),
            None => self.is_unknown = true,
        }
    }

    pub(super) fn into_event(self, live: LiveSeq) -> NodeEvent {
        NodeEvent::LiveSent {
            first: live,
            last: live,
            outcome: (!self.is_unknown).then_some(self.outcome),
        }
    }
}

/// The answer to a request about a group, or that of one hub.
#[derive(Debug)]
pub(super) enum GroupPart {
    Done(Result<(), GroupError>),
    Members { players: Vec<ClientId>, more: bool },
    Sent(LiveOutcome),
}

impl GroupPart {
    pub(super) fn into_event(self, request: GroupRequest) -> NodeEvent {
        match self {
            Self::Done(result) => NodeEvent::GroupDone { request, result },
            Self::Members { players, more } => NodeEvent::GroupMembers {
                request,
                players,
                more,
            },
            Self::Sent(outcome) => NodeEvent::GroupSent { request, outcome },
        }
    }
}

/// Answers of all hubs about a group.
#[derive(Debug, Default)]
pub(super) struct GroupSum {
    /// Whether it is a list of members, and not a message.
    is_list: bool,
    outcome: LiveOutcome,
    is_sent: bool,
    members: Vec<ClientId>,
    /// The last member up to which each page is complete; `None` if all are.
    complete_to: Option<ClientId>,
    error: Option<GroupError>,
}

impl GroupSum {
    /// Returns the sum of a list of members.
    pub(super) fn list() -> Self {
        Self {
            is_list: true,
            ..Self::default()
        }
    }

    /// A hub has not taken the request, or has not answered it.
    pub(super) fn on_error(&mut self, error: GroupError) {
        self.outcome.busy = self.outcome.busy.saturating_add(1);
        self.error.get_or_insert(error);
    }

    pub(super) fn add(&mut self, part: GroupPart) {
        match part {
            GroupPart::Done(Err(error)) => self.on_error(error),
            GroupPart::Done(Ok(())) => {}
            GroupPart::Members { players, more } => {
                if let (true, Some(last)) = (more, players.last().copied()) {
                    let to = self.complete_to.unwrap_or(last);
                    self.complete_to = Some(to.min(last));
                }
                self.members.extend(players);
            }
            GroupPart::Sent(outcome) => self.on_sent(outcome),
        }
    }

    const fn on_sent(&mut self, outcome: LiveOutcome) {
        self.is_sent = true;
        self.outcome = sum(self.outcome, outcome);
    }

    pub(super) fn into_event(mut self, request: GroupRequest) -> NodeEvent {
        match self.error {
            Some(error) if self.is_list || !self.is_sent => {
                let result = Err(error);
                NodeEvent::GroupDone { request, result }
            }
            _ if self.is_list => {
                self.members.sort_unstable();
                if let Some(to) = self.complete_to {
                    self.members.retain(|player| *player <= to);
                }
                NodeEvent::GroupMembers {
                    request,
                    players: self.members,
                    more: self.complete_to.is_some(),
                }
            }
            _ => {
                let outcome = self.outcome;
                NodeEvent::GroupSent { request, outcome }
            }
        }
    }
}

const fn sum(one: LiveOutcome, other: LiveOutcome) -> LiveOutcome {
    LiveOutcome {
        reached: one.reached.saturating_add(other.reached),
        offline: one.offline.saturating_add(other.offline),
        busy: one.busy.saturating_add(other.busy),
        refused: one.refused.saturating_add(other.refused),
    }
}

fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
