//! What became of packets, passed on to those who wrote their frames.

use wire::Instant;

use super::mtu::MtuCheck;
use super::{Confirm, Content, News, Outcome, Sending};
use crate::inbox::Inbox;
use crate::outbox::Outbox;

/// Who hears what became of a packet's contents.
pub(super) struct Fates<'a> {
    pub(super) now: Instant,
    pub(super) outbox: &'a mut Outbox,
    pub(super) inbox: &'a mut Inbox,
    pub(super) confirm: &'a mut Option<(Box<Confirm>, Sending)>,
    pub(super) mtu: &'a mut u16,
    pub(super) mtu_check: &'a mut MtuCheck,
    pub(super) news: &'a mut News,
}

impl Fates<'_> {
    /// Sees to it that what a lost packet carried is sent again, where it must be.
    pub(super) fn on_lost(&mut self, content: Content) {
        match content {
            Content::Message(message) => {
                self.outbox.on_lost(self.now, message);
            }
            Content::Confirm => {
                if let Some((_, sending)) = self.confirm {
                    *sending = Sending::Due;
                }
            }
            Content::Window(credit) => self.inbox.on_window_lost(credit),
            Content::MtuProbe => {
                if self.mtu_check.on_lost() {
                    self.news.mtu_checked = Some(Outcome(None));
                }
            }
        }
    }

    /// Lets go of what has arrived.
    pub(super) fn on_acknowledged(&mut self, content: Content) {
        match content {
            Content::Message(message) => self.outbox.on_acked(message),
            Content::Window(credit) => self.inbox.on_window_acked(credit),
            Content::Confirm => *self.confirm = None,
            Content::MtuProbe => {
                if let Some(mtu) = self.mtu_check.on_acknowledged() {
                    *self.mtu = (*self.mtu).max(mtu.get());
                    self.news.mtu_checked = Some(Outcome(Some(mtu)));
                }
            }
        }
    }
}
