//! A game whose state is an ECS, and the rules that make it deterministic.
//!
//! There are four rules; only the first is specific to an ECS:
//!
//! - The store iterates entities by archetype and slot. That order depends on all earlier spawns
//!   and
//!   despawns, and so on whether this process has rolled back. Therefore every entity has an
//!   [`Id`] from a counter in the state, and every system visits entities in the order of ids.
//! - An `Entity` is a handle of this process. Entities refer to each other by [`Id`].
//! - Random numbers come from a seed in the state.
//! - Positions and speeds are integers, in 256ths of a cell.

use hecs::{Entity, Query, With, World};
use lockstep::{Sim, StateHasher, Turn};
use wire::MatchId;

/// An entity's id, equal in every process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u32);

/// A position in 256ths of a cell, on a torus.
#[derive(Clone, Copy)]
struct Place {
    x: i32,
    y: i32,
}

/// The distance per tick.
#[derive(Clone, Copy)]
struct Speed {
    x: i32,
    y: i32,
}

/// A player's ship.
#[derive(Clone, Copy)]
struct Ship {
    seat: u16,
    score: u32,
}

/// A shot. It flies until its ticks run out or it hits another seat's ship.
#[derive(Clone, Copy)]
struct Shot {
    seat: u16,
    ticks: u16,
}

/// The order in which systems visit entities.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// By id, which is equal in every process.
    ById,
    /// As stored, which is the mistake that this example demonstrates.
    AsStored,
}

/// The game.
pub(crate) struct Arena {
    world: World,
    /// Determines the wind and the respawn positions.
    random: u64,
    /// The next entity's id.
    next: u32,
    /// Ticks simulated.
    steps: u32,
    /// The hash after each tick. Not part of the state.
    trail: Vec<u64>,
    order: Order,
    match_id: MatchId,
}

/// Half the length and height of the torus.
const HALF: i32 = 16 << 8;
/// Distance at which a shot hits.
const REACH: i32 = 1 << 8;
/// Distance that a shot flies per tick.
const SHOT_SPEED: i32 = 160;
/// Lifetime of a shot in ticks.
const SHOT_TICKS: u16 = 45;
/// Minimum ticks between two shots of a ship.
const RELOAD: u32 = 5;

impl Arena {
    /// Starts a match. Ships spawn in the first tick.
    pub(crate) fn new(match_id: MatchId, order: Order) -> Self {
        Self {
            world: World::new(),
            random: 1,
            next: 0,
            steps: 0,
            trail: Vec::new(),
            order,
            match_id,
        }
    }

    /// Returns the hash of the state.
    pub(crate) fn hashed(&self) -> StateHasher {
        let mut hasher = StateHasher::new(self.match_id);
        self.hash(&mut hasher);
        hasher
    }

    /// Returns the hash after a simulated tick.
    pub(crate) fn hash_after(&self, tick: u32) -> Option<u64> {
        self.trail.get(usize::try_from(tick).ok()?).copied()
    }

    /// Returns the scores in seat order.
    pub(crate) fn scores(&self) -> Vec<u32> {
        let rows = self.rows();
        let scores = rows.iter().filter_map(|row| match row.kind {
            Kind::Ship(ship) => Some(ship.score),
            Kind::Shot(_) => None,
        });
        scores.collect()
    }

    /// Returns the entities which match `Q`, sorted by id. Every system iterates over this.
    fn visit<Q: Query>(&mut self) -> Vec<(Id, Entity)> {
        let found = self.world.query_mut::<With<(&Id, Entity), Q>>();
        let mut found: Vec<_> = found
            .into_iter()
            .map(|(id, entity)| (*id, entity))
            .collect();
        if self.order == Order::ById {
            found.sort_unstable_by_key(|(id, _)| *id);
        }
        found
    }

    const fn name(&mut self) -> Id {
        let id = Id(self.next);
        self.next = self.next.wrapping_add(1);
        id
    }

    /// Draws a number below `end` (`SplitMix64`; Steele, Lea and Flood, 2014).
    fn draw(&mut self, end: i32) -> i32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let end = u64::from(end.unsigned_abs()).max(1);
        i32::try_from(mixed % end).unwrap_or(0)
    }

    fn draw_place(&mut self) -> Place {
        let (x, y) = (self.draw(2 * HALF) - HALF, self.draw(2 * HALF) - HALF);
        Place { x, y }
    }

    fn enter(&mut self, seats: u16) {
        for seat in 0..seats {
            let (id, place) = (self.name(), self.draw_place());
            let still = Speed { x: 0, y: 0 };
            self.world
                .spawn((id, place, still, Ship { seat, score: 0 }));
        }
    }

    /// Bits 0 to 3 steer, bit 4 fires. The wind pushes each ship.
    fn steer(&mut self, pressed: &[u16]) {
        for (_, entity) in self.visit::<&Ship>() {
            let wind = Speed {
                x: self.draw(5) - 2,
                y: self.draw(5) - 2,
            };
            let found = self
                .world
                .query_one_mut::<(&mut Speed, &Place, &Ship)>(entity);
            let Ok((speed, place, ship)) = found else {
                continue;
            };
            let buttons = pressed.get(usize::from(ship.seat)).copied().unwrap_or(0);
            let push = |more: u16, less: u16| {
                let is = |bit: u16| i32::from(buttons >> bit & 1);
                (is(more) - is(less)) * 8
            };
            speed.x = (speed.x + push(0, 1) + wind.x).clamp(-96, 96);
            speed.y = (speed.y + push(2, 3) + wind.y).clamp(-96, 96);
            let (place, speed, seat) = (*place, *speed, ship.seat);
            if buttons >> 4 & 1 == 1 && self.steps.is_multiple_of(RELOAD) {
                let speed = Speed {
                    x: SHOT_SPEED * speed.x.signum(),
                    y: SHOT_SPEED * speed.y.signum(),
                };
                let ticks = SHOT_TICKS;
                let id = self.name();
                self.world.spawn((id, place, speed, Shot { seat, ticks }));
            }
        }
    }

    /// Each entity moves independently, so the order does not matter.
    fn fly(&mut self) {
        let wrapped = |at: i32| (at + HALF).rem_euclid(2 * HALF) - HALF;
        for (place, speed) in self.world.query_mut::<(&mut Place, &Speed)>() {
            place.x = wrapped(place.x + speed.x);
            place.y = wrapped(place.y + speed.y);
        }
    }

    /// A shot hits only the first ship that it touches.
    fn hit(&mut self) {
        let ships = self.visit::<&Ship>();
        for (_, entity) in self.visit::<&Shot>() {
            let found = self.world.query_one_mut::<(&mut Shot, &Place)>(entity);
            let Ok((shot, at)) = found else {
                continue;
            };
            shot.ticks = shot.ticks.saturating_sub(1);
            let (shot, at) = (*shot, *at);
            let touched = ships.iter().find(|(_, ship)| self.touches(*ship, shot, at));
            if let Some((_, ship)) = touched {
                let there = self.draw_place();
                if let Ok(place) = self.world.query_one_mut::<&mut Place>(*ship) {
                    *place = there;
                }
                for ship in self.world.query_mut::<&mut Ship>() {
                    ship.score += u32::from(ship.seat == shot.seat);
                }
            }
            if touched.is_some() || shot.ticks == 0 {
                self.world.despawn(entity).ok();
            }
        }
    }

    fn touches(&self, ship: Entity, shot: Shot, at: Place) -> bool {
        let mut query = self.world.query_one::<(&Ship, &Place)>(ship);
        query.get().is_ok_and(|(ship, place)| {
            let is_near = (place.x - at.x).abs().max((place.y - at.y).abs()) < REACH;
            ship.seat != shot.seat && is_near
        })
    }

    /// Returns the whole world sorted by id, for saving and hashing.
    fn rows(&self) -> Vec<Row> {
        let mut found = self
            .world
            .query::<(&Id, &Place, &Speed, Option<&Ship>, Option<&Shot>)>();
        let rows = found.iter().filter_map(|(id, place, speed, ship, shot)| {
            let ship = ship.copied().map(Kind::Ship);
            let kind = ship.or_else(|| shot.copied().map(Kind::Shot))?;
            let (id, place, speed) = (*id, *place, *speed);
            Some(Row {
                id,
                place,
                speed,
                kind,
            })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }
}

/// A saved entity.
#[derive(Clone, Copy)]
struct Row {
    id: Id,
    place: Place,
    speed: Speed,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Ship(Ship),
    Shot(Shot),
}

/// A saved world: rows instead of the store itself, so that it can be sent to another process.
#[derive(Default)]
pub(crate) struct Saved {
    rows: Vec<Row>,
    random: u64,
    next: u32,
    steps: u32,
}

impl Sim for Arena {
    type Input = u16;
    type Snapshot = Saved;

    fn step(&mut self, turn: &Turn<'_, u16>) {
        if self.steps == 0 {
            self.enter(u16::try_from(turn.seat_count()).unwrap_or(u16::MAX));
        }
        // A turn's inputs are in seat order.
        let pressed: Vec<_> = turn.inputs().map(|(_, buttons, _)| buttons).collect();
        self.steer(&pressed);
        self.fly();
        self.hit();
        self.trail
            .truncate(usize::try_from(self.steps).unwrap_or(usize::MAX));
        self.trail.push(self.hashed().finish());
        self.steps += 1;
    }

    fn save(&self, into: &mut Saved) {
        *into = Saved {
            rows: self.rows(),
            random: self.random,
            next: self.next,
            steps: self.steps,
        };
    }

    fn load(&mut self, from: &Saved) {
        self.world.clear();
        for row in &from.rows {
            let common = (row.id, row.place, row.speed);
            match row.kind {
                Kind::Ship(ship) => self.world.spawn((common.0, common.1, common.2, ship)),
                Kind::Shot(shot) => self.world.spawn((common.0, common.1, common.2, shot)),
            };
        }
        (self.random, self.next, self.steps) = (from.random, from.next, from.steps);
    }

    fn hash(&self, hasher: &mut StateHasher) {
        // Sections which others depend on are hashed first: a desync report names the first that
        // differs.
        hasher.section("random");
        hasher.u64(self.random);
        hasher.u32(self.next);
        // Determines when ships may shoot.
        hasher.u32(self.steps);
        let rows = self.rows();
        hasher.section("places");
        for row in &rows {
            hasher.u32(row.id.0);
            for number in [row.place.x, row.place.y, row.speed.x, row.speed.y] {
                hasher.i64(number.into());
            }
        }
        hasher.section("ships and shots");
        for row in &rows {
            match row.kind {
                Kind::Ship(ship) => {
                    hasher.u8(0);
                    hasher.u32(ship.seat.into());
                    hasher.u32(ship.score);
                }
                Kind::Shot(shot) => {
                    hasher.u8(1);
                    hasher.u32(shot.seat.into());
                    hasher.u32(shot.ticks.into());
                }
            }
        }
    }
}
