//! How many reliable bytes the peer may send.

use crate::channel::ChannelError;

/// The receiver's side of flow control; TWP/1, section 7.2.
///
/// All counts are cumulative since the session's start.
#[derive(Debug)]
pub(crate) struct Credit {
    /// Bytes that may be received and not yet read.
    window: u64,
    /// What the peer may send. At first the window, which it knows from the handshake.
    granted: u64,
    /// What it sent.
    spent: u64,
    /// What the application has read of it.
    read: u64,
    /// The highest grant that the peer is known to have.
    acknowledged: u64,
    /// Whether the grant is to be sent, for the first time or again.
    is_due: bool,
}

impl Credit {
    /// Grants one window.
    pub(super) const fn new(window: u64) -> Self {
        Self {
            window,
            granted: window,
            spent: 0,
            read: 0,
            acknowledged: window,
            is_due: false,
        }
    }

    /// Returns the bytes that may be received and not yet read.
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// Takes what a new frame costs from the grant.
    pub(crate) const fn spend(&mut self, credit: usize) -> Result<(), ChannelError> {
        let spent = self.spent.saturating_add(credit as u64);
        if spent > self.granted {
            return Err(ChannelError::Flow);
        }
        self.spent = spent;
        Ok(())
    }

    /// Takes note that the application read a message whose frames cost `credit`.
    pub(super) const fn on_read(&mut self, credit: usize) {
        self.read = self.read.saturating_add(credit as u64);
        let grant = self.read.saturating_add(self.window);
        // A grant for each message would be a frame for each.
        if grant.saturating_sub(self.granted) >= self.window / 4 {
            self.granted = grant;
            self.is_due = true;
        }
    }

    /// Returns the grant to be sent.
    pub(super) fn due(&self) -> Option<u64> {
        self.is_due.then_some(self.granted)
    }

    /// Takes note that `grant` left in a packet.
    pub(super) const fn on_sent(&mut self, grant: u64) {
        if grant == self.granted {
            self.is_due = false;
        }
    }

    /// Takes note that the peer has `grant`.
    pub(super) fn on_acknowledged(&mut self, grant: u64) {
        self.acknowledged = self.acknowledged.max(grant.min(self.granted));
        if self.acknowledged == self.granted {
            self.is_due = false;
        }
    }

    /// Takes note that a packet with `grant` is lost. An older one is worth nothing any more.
    pub(super) const fn on_lost(&mut self, grant: u64) {
        if grant == self.granted && self.acknowledged < self.granted {
            self.is_due = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_at_a_quarter_read_and_again_until_acknowledged() {
        let mut credit = Credit::new(400);
        assert_eq!(credit.spend(401), Err(ChannelError::Flow));
        assert_eq!(credit.spend(400), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
        credit.on_read(99);
        assert_eq!(credit.due(), None);
        credit.on_read(1);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        assert_eq!(credit.due(), None, "it is on its way");
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        credit.on_read(100);
        assert_eq!(credit.due(), Some(600));
        credit.on_sent(600);
        credit.on_lost(500);
        assert_eq!(credit.due(), None, "a newer grant is on its way");
        credit.on_acknowledged(600);
        credit.on_lost(600);
        assert_eq!(credit.due(), None, "the peer has it");
        assert_eq!(credit.spend(200), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_granted_changes_nothing() {
        let mut credit = Credit::new(400);
        credit.on_acknowledged(u64::MAX);
        credit.on_read(100);
        credit.on_sent(500);
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500), "nobody has it yet");
    }
}
