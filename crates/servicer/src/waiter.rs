//! A driver's wait for sockets, its request queue or a deadline.

use std::io::{self, ErrorKind};

use mio::{Events, Poll, Registry, Token, Waker};
use wire::Instant;

use crate::Clock;

/// Waits with mio.
///
/// On Linux and Android, a timer descriptor keeps the deadlines, because mio rounds timeouts up to
/// whole milliseconds. It is set only if it does not already end sooner, so a deadline that keeps
/// moving later costs no system calls. Other systems use the timeout of mio's wait.
#[derive(Debug)]
pub(crate) struct Waiter {
    poll: Poll,
    events: Events,
    #[cfg(has_linux_calls)]
    timer: Option<timer::Timer>,
}

impl Waiter {
    /// Creates a waiter of up to `events_max` events per wait, and a waker for other threads.
    pub(crate) fn new(events_max: usize) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        #[cfg(has_linux_calls)]
        let timer = timer::Timer::new(poll.registry()).ok();
        Ok((
            Self {
                poll,
                events: Events::with_capacity(events_max),
                #[cfg(has_linux_calls)]
                timer,
            },
            waker,
        ))
    }

    /// Returns the registry for sockets. Their tokens must be below [`TOKENS_MAX`].
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    pub(crate) fn poll_now(&mut self) -> io::Result<()> {
        self.poll
            .poll(&mut self.events, Some(std::time::Duration::ZERO))
    }

    /// Returns the events of the last wait or poll, without the waiter's own.
    pub(crate) fn events(&self) -> impl Iterator<Item = &mio::event::Event> {
        self.events
            .iter()
            .filter(|event| event.token().0 < TOKENS_MAX)
    }

    /// Waits for an event, until `deadline` at the latest. Spurious returns are possible.
    pub(crate) fn wait(&mut self, clock: Clock, deadline: Option<Instant>) -> io::Result<()> {
        let now = clock.now();
        let timeout = match deadline {
            Some(deadline) if deadline <= now => return Ok(()),
            #[cfg(has_linux_calls)]
            Some(deadline)
                if self
                    .timer
                    .as_mut()
                    .is_some_and(|timer| timer.arm(now, deadline).is_ok()) =>
            {
                None
            }
            Some(deadline) => Some(deadline.saturating_since(now)),
            None => None,
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(has_linux_calls)]
mod timer {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd};

    use mio::unix::SourceFd;
    use mio::{Interest, Registry};
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use wire::Instant;

    /// A timer descriptor, see `timerfd_create(2)`.
    #[derive(Debug)]
    pub(super) struct Timer {
        descriptor: TimerFd,
        /// When the timer expires next. A time in the past means that it is not set.
        ends: Option<Instant>,
    }

    impl Timer {
        pub(super) fn new(registry: &Registry) -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let descriptor = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            registry.register(
                &mut SourceFd(&descriptor.as_fd().as_raw_fd()),
                super::TIMER,
                Interest::READABLE,
            )?;
            Ok(Self {
                descriptor,
                ends: None,
            })
        }

        /// Makes the wait end at `deadline` or sooner. `deadline` must be after `now`.
        ///
        /// The descriptor is never read: the wait is edge-triggered, and setting the timer clears
        /// its expiration count.
        pub(super) fn arm(&mut self, now: Instant, deadline: Instant) -> io::Result<()> {
            if self.ends.is_some_and(|ends| ends > now && ends <= deadline) {
                return Ok(());
            }
            let span = TimeSpec::from_duration(deadline.saturating_since(now));
            self.descriptor
                .set(Expiration::OneShot(span), TimerSetTimeFlags::empty())?;
            self.ends = Some(deadline);
            Ok(())
        }
    }
}

/// First token of those reserved for the waiter.
pub(crate) const TOKENS_MAX: usize = usize::MAX - 2;

const WAKER: Token = Token(TOKENS_MAX);
#[cfg(has_linux_calls)]
const TIMER: Token = Token(TOKENS_MAX + 1);
