//! Someone who sees datagrams and sends what he likes.

use core::net::SocketAddr;
use core::time::Duration;

use wire::Generator;

use crate::mutation::below;
use crate::{Datagram, Mutation, TapId, World};

/// Replays, damages and forges datagrams of a world.
///
/// What it does arrives past the links, as from next to the victim. To drop, hold back or change
/// what passes a link, see [`World::intercept`]; to write a script of one's own, see
/// [`World::captured`] and [`World::inject`].
#[derive(Debug)]
pub struct Adversary {
    tap: TapId,
    generator: Generator,
}

impl Adversary {
    /// Makes one that knows what `tap` records.
    #[must_use]
    pub const fn new(tap: TapId, generator: Generator) -> Self {
        Self { tap, generator }
    }

    /// Sends a captured datagram once more as it was, `delay` from now; false where none was
    /// captured.
    pub fn replay(&mut self, world: &mut World, delay: Duration) -> bool {
        self.repeat(world, delay, |_, _| {})
    }

    /// Sends a captured datagram from `source` in place of its sender, `delay` from now; false
    /// where none was captured.
    pub fn replay_from(&mut self, world: &mut World, source: SocketAddr, delay: Duration) -> bool {
        self.repeat(world, delay, |_, datagram| datagram.source = source)
    }

    /// Sends a damaged copy of a captured datagram, `delay` from now; false where none was
    /// captured.
    pub fn damage(&mut self, world: &mut World, mutation: Mutation, delay: Duration) -> bool {
        self.repeat(world, delay, |generator, datagram| {
            datagram.bytes = mutation.apply(generator, &datagram.bytes);
        })
    }

    /// Sends random bytes of a random length up to 1,500 under any name, `delay` from now.
    pub fn forge(
        &mut self,
        world: &mut World,
        source: SocketAddr,
        destination: SocketAddr,
        delay: Duration,
    ) {
        let bytes = Mutation::Replace.apply(&mut self.generator, &[]);
        world.inject(delay, Datagram::new(source, destination, bytes));
    }

    /// Draws one hostile act: any [`Mutation`] of any capture, under its sender's name or that of
    /// another captured datagram, up to two seconds from now. False where none was captured.
    pub fn strike(&mut self, world: &mut World) -> bool {
        let mutation = Mutation::draw(&mut self.generator);
        let delay = Duration::from_micros(self.generator.below(2_000_000));
        let other = self.choose(world).map(|datagram| datagram.source);
        let foreign = self.generator.chance(FOREIGN_PER_MILLION);
        self.repeat(world, delay, |generator, datagram| {
            datagram.bytes = mutation.apply(generator, &datagram.bytes);
            if let (true, Some(other)) = (foreign, other) {
                datagram.source = other;
            }
        })
    }

    fn repeat(
        &mut self,
        world: &mut World,
        delay: Duration,
        change: impl FnOnce(&mut Generator, &mut Datagram),
    ) -> bool {
        let Some(mut datagram) = self.choose(world) else {
            return false;
        };
        change(&mut self.generator, &mut datagram);
        world.inject(delay, datagram);
        true
    }

    fn choose(&mut self, world: &World) -> Option<Datagram> {
        let captured = world.captured(self.tap);
        let at = below(&mut self.generator, captured.len());
        captured.get(at).map(|captured| captured.datagram.clone())
    }
}

/// How often a strike bears another sender's name.
const FOREIGN_PER_MILLION: u32 = 250_000;
