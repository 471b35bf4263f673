use std::convert::Infallible;
use std::time::Duration;

use wire::{CloseCause, CommandId, ConnectionId, Outbound, PeerIdentity};

use super::*;
use crate::tcp::Dial;

/// A machine and application that never finish: endless events, or a far timer.
#[derive(Debug)]
struct Endless {
    /// Whether there is always one more event.
    is_talkative: bool,
    timeout: Instant,
    reported: usize,
}

impl StreamMachine for Endless {
    type Event = ();
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, _: ConnectionId, _: &PeerIdentity) {}

    fn handle_frame(&mut self, _: Instant, _: ConnectionId, _: &[u8]) {}

    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}

    fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {}

    fn poll_outbound(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Outbound> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        self.reported += usize::from(self.is_talkative);
        self.is_talkative.then_some(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.timeout)
    }
}

struct Never;

impl StreamApplication<Endless> for Never {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Endless, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Endless, (): ()) {}

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Endless,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }

    fn is_drained(&self, _: &Endless) -> bool {
        false
    }
}

/// Between the deadline of a shutdown and the end of the thread there is at most one turn, and no
/// wait. How long a turn takes depends on the host; 50 ms are some hundred such turns.
#[test]
fn ls_18_no_wait_or_second_turn_passes_the_shutdown_deadline() {
    let hour = Duration::from_secs(3_600);
    // A far timer, a timer that stays due, and endless events. The application never drains.
    for (is_talkative, is_stuck) in [(false, false), (false, true), (true, false)] {
        let now = Clock::new().now();
        let machine = Endless {
            is_talkative,
            timeout: if is_stuck { now } else { now + hour * 2 },
            reported: 0,
        };
        let config = StreamConfig::default();
        let (mut driver, requests) =
            StreamDriver::new(Vec::new(), None, machine, Never, config).unwrap();
        assert_eq!(driver.turn(), ControlFlow::Continue(()));
        // Before the deadline the driver continues, and waits until then at most.
        let deadline = now + hour;
        requests.stop(deadline);
        for _ in 0..3 {
            assert_eq!(driver.turn(), ControlFlow::Continue(()));
            assert!(driver.next_deadline().unwrap() <= deadline);
        }
        // After it, the next turn is the last and takes no more than its bounds.
        requests.stop(now);
        assert!(driver.next_deadline().unwrap() <= Clock::new().now());
        let reported = driver.machine().reported;
        let end = ControlFlow::Break(End::DeadlinePassed);
        assert_eq!(driver.turn(), end);
        assert!(driver.machine().reported - reported <= DRAIN_MAX + 1);
    }
}
