//! A server that calls a game's handlers.

use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::time::Duration;
use std::thread::{self, ThreadId};

use tickwire::udp_proto::{CloseCode, MessageId, Peer};
use tickwire::{
    ChannelId, Client, CloseReason, Event, Game, Message, MessageOutcome, RELIABLE, Server,
    SessionId, Stopper, UNRELIABLE,
};

use crate::exchange::{APP, address};

const HZ: NonZeroU8 = NonZeroU8::MIN.saturating_add(99);

/// Records its calls and echoes messages.
struct CallLog {
    calls: Vec<String>,
    since: Vec<Duration>,
    threads: Vec<ThreadId>,
    /// Ends at this tick.
    ticks_max: usize,
}

impl CallLog {
    fn until(ticks_max: usize) -> Self {
        Self {
            calls: Vec::new(),
            since: Vec::new(),
            threads: Vec::new(),
            ticks_max,
        }
    }

    fn note(&mut self, call: impl Into<String>) {
        self.calls.push(call.into());
        self.threads.push(thread::current().id());
    }
}

impl Game for CallLog {
    fn start(&mut self, _: &mut Server) {
        self.note("start");
    }

    fn connect(&mut self, server: &mut Server, session: SessionId, peer: &Peer) {
        assert!(peer.address.ip().is_loopback());
        let hello = Message::new(RELIABLE, b"welcome");
        server.send_tracked(session, &hello).unwrap();
        self.note("connect");
    }

    fn message(
        &mut self,
        server: &mut Server,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) {
        server.send(session, channel, message).unwrap();
        self.note(String::from_utf8_lossy(message));
    }

    fn settled(
        &mut self,
        _: &mut Server,
        _: SessionId,
        (channel, _): (ChannelId, MessageId),
        outcome: MessageOutcome,
    ) {
        assert_eq!((channel, outcome), (RELIABLE, MessageOutcome::Delivered));
        self.note("settled");
    }

    fn disconnect(&mut self, _: &mut Server, _: SessionId, reason: CloseReason) {
        self.note(format!("{reason:?}"));
    }

    fn tick(&mut self, _: &mut Server, since: Duration) -> ControlFlow<()> {
        self.since.push(since);
        self.threads.push(thread::current().id());
        if self.since.len() >= self.ticks_max {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn stop(&mut self, server: &mut Server) {
        for session in server.sessions().collect::<Vec<_>>() {
            server.send(session, RELIABLE, b"goodbye").unwrap();
        }
        self.note("stop");
    }
}

/// A client that sends `words` and reads until its session ends; returns the messages and the close
/// reason. `stopper` is used when all words were echoed.
fn talk(mut client: Client, words: &[&str], stopper: &Stopper) -> (Vec<String>, CloseReason) {
    let mut received = Vec::new();
    loop {
        for event in client.wait_tick(HZ).unwrap() {
            match event {
                Event::Connected { .. } => {
                    for word in words {
                        client.send(RELIABLE, word.as_bytes()).unwrap();
                    }
                }
                Event::Message { bytes, .. } => {
                    received.push(String::from_utf8(bytes).unwrap());
                    // The welcome, and all words.
                    if received.len() == words.len() + 1 {
                        stopper.stop();
                    }
                }
                Event::Disconnected { reason, .. } => return (received, reason),
                other @ (Event::Unreachable { .. } | Event::Settled { .. } | _) => {
                    panic!("{other:?}")
                }
            }
        }
    }
}

#[test]
fn u16_a_game_is_called_in_order_on_one_thread_and_once_at_the_end() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let stopper = server.stopper();
    let mut log = CallLog::until(usize::MAX);
    let (received, reason) = thread::scope(|scope| {
        let client = scope.spawn(|| talk(client, &["one", "two"], &stopper));
        server.run(HZ, &mut log).unwrap();
        client.join().unwrap()
    });
    assert_eq!(received, ["welcome", "one", "two", "goodbye"]);
    assert_eq!(reason, CloseReason::Peer(CloseCode::Shutdown));
    let calls = log.calls.iter().filter(|call| *call != "settled");
    let calls: Vec<_> = calls.map(String::as_str).collect();
    assert_eq!(
        calls,
        ["start", "connect", "one", "two", "stop", "Local(Shutdown)"]
    );
    assert_eq!(log.calls.len(), calls.len() + 1, "{:?}", log.calls);
    let here = thread::current().id();
    assert!(log.threads.iter().all(|thread| *thread == here));
}

#[test]
fn u16_a_game_ends_itself_after_its_number_of_ticks() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut log = CallLog::until(5);
    server.run(HZ, &mut log).unwrap();
    assert_eq!(log.calls, ["start", "stop"]);
    let span = Duration::from_secs(1) / 100;
    assert_eq!(log.since.len(), 5);
    // A late tick skips others and reports them; none is early.
    assert!(log.since.iter().all(|since| *since >= span));
    assert_eq!(log.since[0], span);
    assert_eq!(server.report().load.ticks, 5);
}

/// Takes two and a half ticks for its second tick.
struct Slow(CallLog);

impl Game for Slow {
    fn message(&mut self, _: &mut Server, _: SessionId, _: ChannelId, _: &[u8]) {}

    fn tick(&mut self, server: &mut Server, since: Duration) -> ControlFlow<()> {
        let flow = self.0.tick(server, since);
        if self.0.since.len() == 2 {
            let (_never, waits) = std::sync::mpsc::channel::<()>();
            waits.recv_timeout(Duration::from_millis(125)).ok();
        }
        flow
    }
}

#[test]
fn u16_a_slow_tick_skips_others_and_the_next_reports_it() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut slow = Slow(CallLog::until(3));
    server
        .run(NonZeroU8::MIN.saturating_add(19), &mut slow)
        .unwrap();
    assert!(
        slow.0.since[2] >= Duration::from_millis(150),
        "{:?}",
        slow.0.since
    );
    assert!(server.report().load.ticks_missed >= 2);
}

/// Kicks every player that sends a message.
#[derive(Default)]
struct Quiet {
    received: usize,
    is_over: bool,
}

impl Game for Quiet {
    fn message(&mut self, server: &mut Server, session: SessionId, _: ChannelId, _: &[u8]) {
        self.received += 1;
        server.disconnect(session).unwrap();
    }

    fn disconnect(&mut self, _: &mut Server, _: SessionId, _: CloseReason) {
        self.is_over = true;
    }

    fn tick(&mut self, _: &mut Server, _: Duration) -> ControlFlow<()> {
        if self.is_over {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Three messages arrive in one packet, and so in one tick.
#[test]
fn u15_a_game_gets_no_more_messages_of_a_session_it_ended_in_the_tick() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let stopper = Stopper::default();
    let mut quiet = Quiet::default();
    let (_, reason) = thread::scope(|scope| {
        let client = scope.spawn(|| talk(client, &["one", "two", "three"], &stopper));
        server.run(HZ, &mut quiet).unwrap();
        client.join().unwrap()
    });
    assert_eq!(reason, CloseReason::Peer(CloseCode::Kicked));
    assert_eq!(quiet.received, 1);
}

/// Kicks every player that sends a message; its one player sends two and leaves, all between two
/// ticks.
struct KickAll {
    player: Client,
    received: usize,
    ended: Option<CloseReason>,
}

impl Game for KickAll {
    fn message(&mut self, server: &mut Server, session: SessionId, _: ChannelId, _: &[u8]) {
        self.received += 1;
        // The session has ended already, so the result does not matter.
        server.kick(session, b"").ok();
    }

    fn disconnect(&mut self, _: &mut Server, _: SessionId, reason: CloseReason) {
        self.ended = Some(reason);
    }

    fn tick(&mut self, _: &mut Server, _: Duration) -> ControlFlow<()> {
        for event in self.player.poll() {
            if matches!(event, Event::Connected { .. }) {
                self.player.send(UNRELIABLE, b"one").unwrap();
                self.player.send(UNRELIABLE, b"two").unwrap();
                self.player.poll();
                self.player.disconnect().unwrap();
                self.player.poll();
            }
        }
        if self.ended.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn u15_a_game_gets_no_more_messages_of_a_session_that_left_in_the_tick() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut game = KickAll {
        player: Client::connect(server.address(), APP, server.key()).unwrap(),
        received: 0,
        ended: None,
    };
    server.run(HZ, &mut game).unwrap();
    // The cause is not the kick, which was later.
    assert_eq!(game.ended, Some(CloseReason::Peer(CloseCode::NoError)));
    assert_eq!(game.received, 1);
}
