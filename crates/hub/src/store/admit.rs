//! Which mails are taken.

use super::{NewMail, Settled, Store, StoreError};
use crate::address::Addr;
use crate::id::MailSeq;
use crate::log::format::{HEAD_BYTES, LogRecord, StoredMail};
use crate::log::{Purpose, REFUSAL_BYTES, SegmentFile, StateKind};
use crate::record::{MailRefusal, MailVerdict};

/// Refusals of one node that its sender may leave unheard.
const REFUSED_MAX: usize = 1_024;

impl<F: SegmentFile> Store<F> {
    pub(super) fn append(&mut self, mail: &NewMail) -> Settled {
        let verdict = self.judge(mail).unwrap_or(MailVerdict::Busy);
        if verdict == MailVerdict::Busy {
            self.stats.busy = self.stats.busy.saturating_add(1);
        }
        Settled {
            node: mail.node,
            epoch: mail.epoch,
            seq: mail.seq,
            to: mail.to,
            verdict,
        }
    }

    /// An error stands for "not now".
    fn judge(&mut self, mail: &NewMail) -> Result<MailVerdict, StoreError> {
        let index = self.log.index_mut();
        let state = index.node(mail.node).ok_or(StoreError::Busy)?;
        if state.run.epoch != mail.epoch {
            return Ok(MailVerdict::Busy);
        }
        index.forget_refusals(mail.node, mail.settled);
        let state = index.node(mail.node).ok_or(StoreError::Busy)?;
        if mail.seq <= state.run.mail_mark {
            self.stats.duplicates = self.stats.duplicates.saturating_add(1);
            let refused = state.refused.get(&mail.seq).copied();
            return Ok(refused.map_or(MailVerdict::Stored, MailVerdict::Refused));
        }
        // Taken out of turn, it would overtake those that were not taken. What the sender says is
        // settled counts, so that it can go on with a hub whose disk was replaced.
        if mail.seq != state.run.mail_mark.max(mail.settled).next() {
            return Ok(MailVerdict::Busy);
        }
        let Addr::Player(player) = mail.to else {
            return self.refuse(mail, MailRefusal::Address);
        };
        let held = index.held(player);
        let len = mail.stored_bytes();
        if held.count >= self.config.mailbox_mails_max
            || held.bytes.saturating_add(len) > self.config.mailbox_bytes_max
        {
            return self.refuse(mail, MailRefusal::MailboxFull);
        }
        if index.live_bytes().saturating_add(len) > self.config.live_bytes_max
            || index.mail_count() >= self.config.mails_max
        {
            return Ok(MailVerdict::Busy);
        }
        let record = LogRecord::Mail(StoredMail {
            seq: MailSeq(index.last_mail.0.saturating_add(1)),
            player,
            expires: mail.expires,
            node: mail.node,
            epoch: mail.epoch,
            sender_seq: mail.seq,
            body: &mail.body,
        });
        self.log.append(&record, Purpose::Data)?;
        self.stats.stored = self.stats.stored.saturating_add(1);
        Ok(MailVerdict::Stored)
    }

    /// Keeps the refusal, so that the mail sent again is not taken for one that is on disk.
    fn refuse(&mut self, mail: &NewMail, reason: MailRefusal) -> Result<MailVerdict, StoreError> {
        let unheard = self
            .log
            .index()
            .node(mail.node)
            .map_or(0, |state| state.refused.len());
        if unheard >= REFUSED_MAX {
            return Ok(MailVerdict::Busy);
        }
        self.have_state_room(StateKind::Refusals, REFUSAL_BYTES)?;
        let record = LogRecord::Refusal {
            node: mail.node,
            epoch: mail.epoch,
            seq: mail.seq,
            reason,
        };
        self.log.append(&record, Purpose::Data)?;
        self.stats.refused = self.stats.refused.saturating_add(1);
        Ok(MailVerdict::Refused(reason))
    }
}

/// What stands in a log beside the body of a mail, bytes.
const HEAD_AND_FIELDS: u64 = HEAD_BYTES as u64 + 69;

impl NewMail {
    /// What its record takes in the log, bytes.
    const fn stored_bytes(&self) -> u64 {
        (self.body.len() as u64).saturating_add(HEAD_AND_FIELDS)
    }
}
