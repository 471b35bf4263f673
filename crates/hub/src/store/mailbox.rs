//! Stores a mail for its recipients, within the limits of their mailboxes.

use wire::ClientId;

use super::{FullReason, NewMail, Store, StoreError};
use crate::field::{Addr, GroupId, MailSeq, Redacted};
use crate::log::format::{DROPS_MAX, LogRecord, StoredMail, StoredMailing};
use crate::log::snapshot_format::MailSize;
use crate::log::{
    Purpose, Refused, SegmentFile, SenderUsage, StateKind, mail_bytes, mailing_bytes,
};
use crate::record::{
    GROUP_BODY_BYTES_MAX, MailRefusal, MailTo, MailVerdict, PartRefusal, PlayerIds, PlayerList,
};

/// What happens to a mail for a full mailbox.
///
/// A dropped mail was reported to its sender as stored: the sender gets no other report, and the
/// player never gets the mail. The store counts it, and the hub reports the number
/// ([`HubEvent::MailDropped`](crate::HubEvent::MailDropped)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// The new mail is rejected, and its sender gets the reason. No stored mail is lost.
    #[default]
    RejectSender,
    /// The oldest mails of the mailbox are dropped, whatever their priority.
    DropOldest,
    /// Mails of a lower priority are dropped: the lowest first, and of equal ones the oldest. If that
    /// makes too little room, the new mail is rejected.
    DropLowestPriority,
}

/// The verdict on a mail, and the number of mails that were dropped for it.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: MailVerdict,
    pub(super) part: Option<PartRefusal>,
    pub(super) dropped: u32,
    /// The members of the group that it was stored for.
    pub(super) members: Option<PlayerIds>,
}

impl From<MailVerdict> for Judged {
    fn from(verdict: MailVerdict) -> Self {
        Self {
            verdict,
            part: None,
            dropped: 0,
            members: None,
        }
    }
}

impl From<&Refused> for Judged {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::All(reason) => MailVerdict::Refused(*reason).into(),
            Refused::Part(part) => Self {
                part: Some(part.clone()),
                ..MailVerdict::Stored.into()
            },
        }
    }
}

/// Most refusals kept for one node until its sender knows them.
const REFUSED_MAX: usize = 1_024;

/// Most bytes of these in the log.
const REFUSED_BYTES_MAX: u64 = 64 * 1_024;

impl<F: SegmentFile> Store<F> {
    /// Returns the verdict; an error means "not now".
    pub(super) fn judge(&mut self, mail: &NewMail) -> Result<Judged, StoreError> {
        let index = &mut self.log.index;
        let state = index.node(mail.node).ok_or(StoreError::Busy)?;
        if state.run.epoch != mail.epoch {
            return Ok(MailVerdict::Busy.into());
        }
        index.forget_refusals(mail.node, mail.settled);
        let state = index.node(mail.node).ok_or(StoreError::Busy)?;
        if mail.seq <= state.run.mail_mark {
            self.stats.duplicates = self.stats.duplicates.saturating_add(1);
            let refused = state.refused.get(&mail.seq).map(Judged::from);
            return Ok(refused.unwrap_or_else(|| MailVerdict::Stored.into()));
        }
        // Out of order, it would overtake mails that are not stored. The sender's `settled` counts
        // too, so that a sender can continue with a hub with a replaced disk.
        if mail.seq != state.run.mail_mark.max(mail.settled).next() {
            return Ok(MailVerdict::Busy.into());
        }
        match &mail.to {
            MailTo::One(Addr::Player(player)) => {
                let id = player.0.to_be_bytes();
                self.store_for(mail, PlayerList::single(&id))
            }
            MailTo::Many(players) => self.store_for(mail, players.list()),
            MailTo::One(Addr::Group(group)) => self.store_for_group(mail, *group),
            MailTo::One(Addr::Node(_) | Addr::Service(_) | Addr::Topic(_)) => {
                self.refuse(mail, MailRefusal::Address)
            }
        }
    }

    /// Stores a mail for all members of a group: as one record, so for all of them or for none.
    fn store_for_group(&mut self, mail: &NewMail, group: GroupId) -> Result<Judged, StoreError> {
        if mail.body.0.len() > GROUP_BODY_BYTES_MAX {
            return self.refuse(mail, MailRefusal::TooLong);
        }
        let groups = &self.log.index.groups;
        let (Some(players), _) = groups.page(group, ClientId(0), PlayerList::LEN_MAX) else {
            return self.refuse(mail, MailRefusal::NoMember);
        };
        let judged = self.store_for(mail, players.list())?;
        let is_stored = judged.verdict == MailVerdict::Stored;
        Ok(Judged {
            members: is_stored.then_some(players),
            ..judged
        })
    }

    fn store_for(&mut self, mail: &NewMail, players: PlayerList<'_>) -> Result<Judged, StoreError> {
        let (mut drops, mut refused) = (Vec::new(), Vec::new());
        let bytes = match players.len() {
            1 => mail_bytes(mail.body.0.len()),
            count => mailing_bytes(count, mail.body.0.len()),
        };
        let size = MailSize::of(players.len(), bytes, mail.body.0.len());
        let size = size.with_priority(mail.priority);
        for player in players.iter() {
            let bytes = size.mail_bytes().into();
            let (index, node) = (&self.log.index, mail.node);
            let config = &self.config;
            if !config.is_within_mailbox_share(index, node, player, bytes)
                || !self.make_room(player, size, &mut drops)
            {
                refused.push(player);
            }
        }
        if refused.len() == players.len() {
            return self.refuse(mail, MailRefusal::MailboxFull);
        }
        let added = SenderUsage {
            mails: players.len() as u64,
            bytes: size.record_bytes().into(),
        };
        if !self
            .config
            .is_within_share(&self.log.index, mail.node, added)
        {
            return Ok(MailVerdict::OverShare.into());
        }
        if !self.has_room_for(players.len(), size) {
            self.full = Some(FullReason::Limit);
            return Ok(MailVerdict::Full.into());
        }
        let mut ids = Vec::new();
        let (accepted, part) = if refused.is_empty() {
            (players, None)
        } else {
            let is_refused = |player| refused.binary_search(&player).is_ok();
            let accepted: Vec<_> = players.iter().filter(|it| !is_refused(*it)).collect();
            let part = PartRefusal::of_players(MailRefusal::MailboxFull, players, is_refused);
            // The sender has no list of a group's members.
            let part = match &mail.to {
                MailTo::One(_) => part.map(PartRefusal::without_positions),
                MailTo::Many(_) => part,
            };
            let accepted = PlayerList::encode_into(&accepted, &mut ids);
            (accepted.ok_or(StoreError::Busy)?, part)
        };
        if let Some(part) = &part {
            self.check_refusal_room(mail, Refused::Part(part.clone()).bytes())?;
            let count = u64::from(part.refused);
            self.stats.refused = self.stats.refused.saturating_add(count);
        }
        let seq = MailSeq(self.log.index.last_mail.0.saturating_add(1));
        let record = stored_record(mail, seq, accepted, part.clone());
        self.log.append(&record, Purpose::Data)?;
        let count = accepted.len() as u64;
        self.stats.stored = self.stats.stored.saturating_add(count);
        Ok(Judged {
            verdict: MailVerdict::Stored,
            part,
            dropped: self.drop_mails(drops),
            members: None,
        })
    }

    /// Returns whether the mailbox of `player` takes a mail of `size`, after the mails that are appended to
    /// `drops` are dropped. At most [`DROPS_MAX`] are dropped for one mail.
    fn make_room(
        &self,
        player: ClientId,
        size: MailSize,
        drops: &mut Vec<(ClientId, MailSeq)>,
    ) -> bool {
        let mut mailbox = self.log.index.mailbox(player);
        let len = u64::from(size.mail_bytes());
        let (mails_max, bytes_max) = (self.config.mailbox_mails_max, self.config.mailbox_bytes_max);
        let fits =
            |count: u32, bytes: u64| count < mails_max && bytes.saturating_add(len) <= bytes_max;
        if fits(mailbox.count, mailbox.bytes) {
            return true;
        }
        if self.config.on_full == OnFull::RejectSender || !fits(0, 0) {
            return false;
        }
        let entries = self.log.index.mails_after(player, MailSeq(0));
        let mut victims: Vec<_> = entries.map(|(seq, entry)| (seq, entry.size)).collect();
        if self.config.on_full == OnFull::DropLowestPriority {
            victims.retain(|(_, victim)| victim.priority() < size.priority());
            victims.sort_by_key(|(_, victim)| victim.priority());
        }
        let before = drops.len();
        for (seq, victim) in victims {
            if fits(mailbox.count, mailbox.bytes) || drops.len() >= DROPS_MAX {
                break;
            }
            mailbox.count = mailbox.count.saturating_sub(1);
            mailbox.bytes = mailbox.bytes.saturating_sub(victim.mail_bytes().into());
            drops.push((player, seq));
        }
        let has_room = fits(mailbox.count, mailbox.bytes);
        if !has_room {
            drops.truncate(before);
        }
        has_room
    }

    /// Returns whether the log has room for a mail to `players` players, in bytes and in mails.
    fn has_room_for(&self, players: usize, size: MailSize) -> bool {
        let index = &self.log.index;
        let bytes = index
            .live_bytes()
            .saturating_add(size.record_bytes().into());
        let mails = index.mail_count().saturating_add(players);
        bytes <= self.config.live_bytes_max && mails <= self.config.mails_max
    }

    /// Drops mails, and returns how many. Without room for the record, the mailbox exceeds its
    /// limit until the next mail.
    fn drop_mails(&mut self, drops: Vec<(ClientId, MailSeq)>) -> u32 {
        let count = u32::try_from(drops.len()).unwrap_or(u32::MAX);
        if drops.is_empty()
            || self
                .log
                .append(&LogRecord::Dropped(drops), Purpose::Ack)
                .is_err()
        {
            return 0;
        }
        let stats = &mut self.stats;
        let sum = match self.config.on_full {
            OnFull::DropLowestPriority => &mut stats.dropped_low_priority,
            OnFull::DropOldest | OnFull::RejectSender => &mut stats.dropped_oldest,
        };
        *sum = sum.saturating_add(count.into());
        count
    }

    /// Records the refusal, so that a resent mail is not taken for a stored one.
    fn refuse(&mut self, mail: &NewMail, reason: MailRefusal) -> Result<Judged, StoreError> {
        self.check_refusal_room(mail, Refused::All(reason).bytes())?;
        let record = LogRecord::Refusal {
            node: mail.node,
            epoch: mail.epoch,
            seq: mail.seq,
            reason,
        };
        self.log.append(&record, Purpose::Data)?;
        let count = mail.to.players().count().max(1) as u64;
        self.stats.refused = self.stats.refused.saturating_add(count);
        Ok(MailVerdict::Refused(reason).into())
    }

    fn check_refusal_room(&self, mail: &NewMail, bytes: u64) -> Result<(), StoreError> {
        let state = self.log.index.node(mail.node);
        let is_full = state.is_some_and(|state| {
            state.refused.len() >= REFUSED_MAX
                || state.refused_bytes.saturating_add(bytes) > REFUSED_BYTES_MAX
        });
        if is_full {
            return Err(StoreError::Busy);
        }
        self.check_state_room(StateKind::Refusals, bytes)
    }
}

fn stored_record<'a>(
    mail: &'a NewMail,
    seq: MailSeq,
    players: PlayerList<'a>,
    part: Option<PartRefusal>,
) -> LogRecord<'a> {
    let body = Redacted(&mail.body[..]);
    match players.iter().next() {
        // Shorter.
        Some(player) if players.len() == 1 && part.is_none() && mail.priority == 0 => {
            LogRecord::Mail(StoredMail {
                seq,
                player,
                expires: mail.expires,
                node: mail.node,
                epoch: mail.epoch,
                sender_seq: mail.seq,
                body,
            })
        }
        _ => LogRecord::Mailing(StoredMailing {
            seq,
            expires: mail.expires,
            node: mail.node,
            epoch: mail.epoch,
            sender_seq: mail.seq,
            priority: mail.priority,
            players,
            part,
            body,
        }),
    }
}
