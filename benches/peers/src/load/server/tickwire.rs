//! A driver of `servicer`.

use core::convert::Infallible;
use core::num::NonZeroUsize;
use core::ops::ControlFlow;

use benches::pair::{APP, INSTANCE, UNRELIABLE};
use crypto::{Identity, Ring};
use servicer::{Application, Clock, Driver, Requests, SocketConfig, UdpSocket};
use udp_proto::{Endpoint, Event, Listen, SessionId};
use wire::{CommandId, Instant};

use super::{MESSAGE, Plan, Ticks, count, listen};
use crate::stack::tickwire::configured;

/// The game: its sessions and their messages.
struct Game {
    sessions: Vec<SessionId>,
    message: Vec<u8>,
}

impl Game {
    fn send_to_all(&self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        for session in &self.sessions {
            endpoint.send(now, *session, UNRELIABLE, &MESSAGE).ok();
        }
    }
}

impl Application<Endpoint<Ring>> for Game {
    type Request = ();

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        (): (),
    ) -> ControlFlow<()> {
        self.send_to_all(now, endpoint);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: Event) {
        match event {
            Event::Connected { session, .. } => self.sessions.push(session),
            Event::Closed { session, .. } => self.sessions.retain(|open| *open != session),
            Event::Readable { session } => {
                let mut received = 0;
                while endpoint.receive(now, session, &mut self.message).is_some() {
                    received += 1;
                }
                count(received);
            }
            _ => {}
        }
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Endpoint<Ring>,
        _: CommandId,
        command: Infallible,
    ) {
        match command {}
    }
}

/// Serves like a game which polls its sockets once per tick.
pub(super) fn serve(plan: Plan) {
    let (mut driver, _requests) = open();
    let mut ticks = Ticks::new(plan);
    loop {
        if ticks.wait().sends {
            driver.act(|now, endpoint, game| game.send_to_all(now, endpoint));
        }
        if driver.turn().is_break() {
            return;
        }
    }
}

/// Serves on a thread which wakes for each datagram, like the background driver of `tickwire`. The
/// game's ticks are requests to it.
pub(super) fn serve_woken(plan: Plan) {
    let (driver, requests) = open();
    std::thread::spawn(move || {
        let mut ticks = Ticks::new(plan);
        loop {
            if ticks.wait().sends {
                requests.send(()).ok();
            }
        }
    });
    driver.run();
}

/// Opens a server on its own port and prints the address.
fn open() -> (Driver<Endpoint<Ring>, Game>, Requests<()>) {
    let now = Clock::new().now();
    let identity = Identity::generate(&mut Ring::new()).expect("entropy");
    let connect_data = identity.public_key().0;
    let config = configured(udp_proto::Config::for_server());
    let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).expect("entropy");
    let open = Listen::new(identity, INSTANCE).with_open_mode();
    endpoint.listen(now, open).expect("entropy");

    let address = "127.0.0.1:0".parse().expect("an address");
    let socket = UdpSocket::bind(address, &SocketConfig::default()).expect("a port");
    let address = socket.local_address();
    let game = Game {
        sessions: Vec::new(),
        message: Vec::new(),
    };
    let mut config = servicer::Config::default();
    // All datagrams since the last tick.
    config.datagrams_per_turn = NonZeroUsize::new(65_536).expect("not 0");
    let made = Driver::new(vec![socket], endpoint, game, config).expect("descriptors");
    listen(address, &connect_data);
    made
}
