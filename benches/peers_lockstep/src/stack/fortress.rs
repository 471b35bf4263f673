//! fortress-rollback 0.13.0, a former fork of ggrs.

use core::cell::RefCell;
use core::marker::PhantomData;
use core::time::Duration;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use fortress_rollback::network::codec;
use fortress_rollback::{
    DesyncDetection, FortressEvent, FortressRequest, Message, NonBlockingSocket, P2PSession,
    PlayerHandle, PlayerType, ProtocolConfig, SessionBuilder,
};

use super::{Count, FPS, Post, Setup, Stack};
use crate::game::{Game, Saved};
use crate::network::Mailbox;
use crate::play::Play;

/// A match of fortress-rollback.
pub struct Fortress<P: Play>(Vec<Peer<P>>);

/// The types of a session.
pub struct Terms<P>(PhantomData<P>);

impl<P: Play> fortress_rollback::Config for Terms<P> {
    type Input = P;
    type State = Saved;
    type Address = u32;
}

struct Peer<P: Play> {
    session: P2PSession<Terms<P>>,
    socket: Rc<RefCell<Letters>>,
    handle: PlayerHandle,
    game: Game,
    /// Frames to skip at the session's request.
    skip: u32,
    /// Whether states are compared.
    compares: bool,
    has_found_desync: bool,
}

/// The socket's datagrams.
#[derive(Debug, Default)]
struct Letters {
    inbox: Mailbox,
    outbox: Mailbox,
}

struct Socket(Rc<RefCell<Letters>>);

/// Uses the same codec as the library's own socket.
impl NonBlockingSocket<u32> for Socket {
    fn send_to(&mut self, message: &Message, node: &u32) {
        let outbox = &mut self.0.borrow_mut().outbox;
        codec::encode_append(message, &mut outbox.bytes).expect("a message");
        outbox.close(*node);
    }

    fn receive_all_messages(&mut self) -> Vec<(u32, Message)> {
        let mut messages = Vec::with_capacity(4);
        self.0.borrow_mut().inbox.drain(|from, datagram| {
            let message = codec::decode_message(datagram);
            messages.extend(message.ok().map(|(message, _)| (from, message)));
        });
        messages
    }
}

/// Virtual time as the library's type.
#[expect(
    clippy::disallowed_methods,
    reason = "its points in time can only be made from one of the system's"
)]
fn clock() -> std::time::Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now) + instant::now()
}

impl<P: Play> Peer<P> {
    fn new(setup: &Setup, handle: usize) -> Self {
        let socket = Rc::new(RefCell::new(Letters::default()));
        let desync = match setup.diverges {
            Some(_) => DesyncDetection::On { interval: 1 },
            None => DesyncDetection::Off,
        };
        let protocol = ProtocolConfig {
            clock: Some(Arc::new(clock)),
            protocol_rng_seed: Some(setup.seed * 64 + handle as u64 + 1),
            ..ProtocolConfig::default()
        };
        let builder = SessionBuilder::<Terms<P>>::new()
            .with_num_players(setup.players)
            .and_then(|it| it.with_fps(FPS as usize))
            .and_then(|it| it.with_input_delay(setup.delay as usize))
            .expect("a setup that it can play");
        let builder = builder
            .with_max_prediction_window(setup.window as usize)
            .with_desync_detection_mode(desync)
            .with_protocol_config(protocol);
        let builder = (0..setup.players).fold(builder, |builder, other| {
            let kind = if other == handle {
                PlayerType::Local
            } else {
                PlayerType::Remote(u32::try_from(other).expect("a player"))
            };
            builder
                .add_player(kind, PlayerHandle::new(other))
                .expect("a player")
        });
        let diverges_at = setup.diverges.and_then(|(who, at)| {
            let is_us = who == handle;
            is_us.then_some(at)
        });
        Self {
            session: builder
                .start_p2p_session(Socket(Rc::clone(&socket)))
                .expect("a session"),
            socket,
            handle: PlayerHandle::new(handle),
            game: Game::new(diverges_at),
            skip: 0,
            compares: setup.diverges.is_some(),
            has_found_desync: false,
        }
    }

    /// Swaps datagrams with `post`, before and after a turn.
    fn swap(&self, post: &mut Post<'_>) {
        let letters = &mut *self.socket.borrow_mut();
        core::mem::swap(&mut letters.inbox, post.inbox);
        core::mem::swap(&mut letters.outbox, post.outbox);
    }

    fn frame(&mut self, input: P) {
        if self.skip > 0 {
            self.skip -= 1;
            self.session.poll_remote_clients();
        } else {
            self.session
                .add_local_input(self.handle, input)
                .expect("a local player");
            // The session has not started, or has predicted as far as allowed.
            for request in self.session.advance_frame().unwrap_or_default() {
                self.fulfil(request);
            }
        }
    }

    fn fulfil(&mut self, request: FortressRequest<Terms<P>>) {
        match request {
            FortressRequest::SaveGameState { cell, frame } => {
                let saved = self.game.save();
                let checksum = self.compares.then_some(u128::from(saved.state));
                cell.save(frame, Some(saved), checksum);
            }
            FortressRequest::LoadGameState { cell, .. } => {
                self.game.load(cell.load().expect("a state that was saved"));
            }
            FortressRequest::AdvanceFrame { inputs } => {
                self.game
                    .advance(inputs.into_iter().map(|(input, _)| input.word()));
            }
        }
    }

    fn hear(&mut self) {
        for event in self.session.events() {
            match event {
                FortressEvent::WaitRecommendation { skip_frames } => self.skip = skip_frames,
                FortressEvent::DesyncDetected { .. } => self.has_found_desync = true,
                _ => {}
            }
        }
    }
}

impl<P: Play> Stack<P> for Fortress<P> {
    const NAME: &'static str = "fortress";
    const SEAL: [u64; 2] = [0, 0];
    const HAS_SERVER: bool = false;

    fn new(setup: &Setup) -> Self {
        Self(
            (0..setup.players)
                .map(|handle| Peer::new(setup, handle))
                .collect(),
        )
    }

    fn poll(&mut self, node: usize, _: Duration, post: &mut Post<'_>) {
        let peer = &mut self.0[node];
        peer.swap(post);
        peer.session.poll_remote_clients();
        peer.hear();
        peer.swap(post);
    }

    fn frame(&mut self, player: usize, _: Duration, input: P, post: &mut Post<'_>) {
        let peer = &mut self.0[player];
        peer.swap(post);
        peer.frame(input);
        peer.hear();
        peer.swap(post);
    }

    fn game(&self, player: usize) -> &Game {
        &self.0[player].game
    }

    fn confirmed(&self, player: usize) -> u64 {
        let peer = &self.0[player];
        let inputs = u64::try_from(peer.session.confirmed_frame().as_i32() + 1).unwrap_or(0);
        inputs.min(peer.game.steps.fresh)
    }

    fn count(&self, _: usize) -> Count {
        Count::default()
    }

    fn has_found_desync(&self) -> bool {
        self.0.iter().any(|peer| peer.has_found_desync)
    }
}
