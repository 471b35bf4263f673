//! ggrs 0.13.0: peer-to-peer rollback, or lockstep without prediction.

use core::cell::RefCell;
use core::marker::PhantomData;
use core::time::Duration;
use std::rc::Rc;

use ggrs::{
    DesyncDetection, GgrsEvent, GgrsRequest, Message, NonBlockingSocket, P2PSession, PlayerType,
    PredictRepeatLast, SessionBuilder,
};

use super::{Count, FPS, Post, Setup, Stack};
use crate::game::{Game, Saved};
use crate::network::Mailbox;
use crate::play::Play;

/// A match of ggrs.
pub struct Ggrs<P: Play>(Vec<Peer<P>>);

/// The types of a session.
pub struct Terms<P>(PhantomData<P>);

impl<P: Play> ggrs::Config for Terms<P> {
    type Input = P;
    type InputPredictor = PredictRepeatLast;
    type State = Saved;
    type Address = u32;
}

struct Peer<P: Play> {
    session: P2PSession<Terms<P>>,
    socket: Rc<RefCell<Letters>>,
    handle: usize,
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

/// Uses the codec of ggrs's own socket, without an allocation per datagram.
impl NonBlockingSocket<u32> for Socket {
    fn send_to(&mut self, message: &Message, node: &u32) {
        let outbox = &mut self.0.borrow_mut().outbox;
        bincode::serialize_into(&mut outbox.bytes, message).expect("a message");
        outbox.close(*node);
    }

    fn receive_all_messages(&mut self) -> Vec<(u32, Message)> {
        let mut messages = Vec::new();
        self.0.borrow_mut().inbox.drain(|from, datagram| {
            messages.extend(bincode::deserialize(datagram).ok().map(|it| (from, it)));
        });
        messages
    }
}

impl<P: Play> Peer<P> {
    fn new(setup: &Setup, handle: usize) -> Self {
        let socket = Rc::new(RefCell::new(Letters::default()));
        let desync = match setup.diverges {
            Some(_) => DesyncDetection::On { interval: 1 },
            None => DesyncDetection::Off,
        };
        let builder = SessionBuilder::<Terms<P>>::new()
            .with_num_players(setup.players)
            .and_then(|it| it.with_fps(FPS as usize))
            .expect("a number of players");
        let builder = builder
            .with_input_delay(setup.delay as usize)
            .with_max_prediction_window(setup.window as usize)
            .with_desync_detection_mode(desync);
        let builder = (0..setup.players).fold(builder, |builder, other| {
            let kind = if other == handle {
                PlayerType::Local
            } else {
                PlayerType::Remote(u32::try_from(other).expect("a player"))
            };
            builder.add_player(kind, other).expect("a player")
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
            handle,
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

    fn fulfil(&mut self, request: GgrsRequest<Terms<P>>) {
        match request {
            GgrsRequest::SaveGameState { cell, frame } => {
                let saved = self.game.save();
                let checksum = self.compares.then_some(u128::from(saved.state));
                cell.save(frame, Some(saved), checksum);
            }
            GgrsRequest::LoadGameState { cell, .. } => {
                self.game.load(cell.load().expect("a state that was saved"));
            }
            GgrsRequest::AdvanceFrame { inputs } => {
                self.game
                    .advance(inputs.into_iter().map(|(input, _)| input.word()));
            }
        }
    }

    fn hear(&mut self) {
        for event in self.session.events() {
            match event {
                GgrsEvent::WaitRecommendation { skip_frames } => self.skip = skip_frames,
                GgrsEvent::DesyncDetected { .. } => self.has_found_desync = true,
                _ => {}
            }
        }
    }
}

impl<P: Play> Stack<P> for Ggrs<P> {
    const NAME: &'static str = "ggrs";
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
        let inputs = u64::try_from(peer.session.confirmed_frame() + 1).unwrap_or(0);
        inputs.min(peer.game.steps.fresh)
    }

    fn count(&self, _: usize) -> Count {
        Count::default()
    }

    fn has_found_desync(&self) -> bool {
        self.0.iter().any(|peer| peer.has_found_desync)
    }
}
