//! The run: who is started when, what is done to them, and when it is over.

use std::fmt;
use std::io::Stdout;
use std::time::Duration;

use servicer::Clock;
use wire::Instant;

use super::accident::{self, Accident};
use super::check::{self, trips};
use super::history::History;
use super::ledger::Ledger;
use super::matchmaking;
use super::message::{News, Order, Status};
use super::plan::{Block, Claim, Plan, PlanOptions, RELAYS};
use super::process::{Children, Heard, Sweeper, Who, descendants};
use super::report::{Cause, Check, Report};
use super::table::{Progress, Row, Screen, Style};
use super::wan;
use crate::keyring::Keyring;
use crate::role::{Failure, Role, RunOptions};

/// One run.
struct Stage {
    plan: Plan,
    /// Keeps other runs off our addresses.
    _claim: Claim,
    options: RunOptions,
    /// Removes its folder at the end.
    keyring: Keyring,
    /// Removes it where this process has no time for that; dropped after it.
    sweeper: Sweeper,
    children: Children,
    ledger: Ledger,
    screen: Screen<Stdout>,
    clock: Clock,
    /// When the run began.
    began: Instant,
    report: Report,
    /// What was done to the network, in order.
    accidents: Vec<Accident>,
    /// What the network was like.
    history: History,
    is_hub_killed: bool,
    /// When the hub that was killed comes back.
    hub_back_at: Option<Instant>,
    /// Checks that could not be made, and why.
    missed: Vec<Check>,
}

/// Runs one run, and reports on it: one that breaks off has a check that says why.
pub(super) fn perform(options: PlanOptions) -> Report {
    let mut stage = match Stage::new(options) {
        Ok(stage) => stage,
        Err(error) => return Report::new(&options).broken_off(&error.to_string()),
    };
    match stage.run() {
        Ok(()) => stage.report,
        Err(error) => stage.report.broken_off(&error.to_string()),
    }
}

impl Stage {
    /// Draws the plan and takes a block of addresses.
    fn new(options: PlanOptions) -> Result<Self, Failure> {
        let claim = Block::claim()
            .map_err(|error| format!("no block of loopback addresses is free: {error}"))?;
        let plan = Plan::new(options, claim.block());
        plan.check_errand()?;
        let keyring = Keyring::new()?;
        let sweeper = Sweeper::start(keyring.directory())?;
        keyring.fill(&plan)?;
        Ok(Self {
            plan,
            options: RunOptions {
                plan: options,
                block: claim.block(),
                directory: keyring.directory().to_owned(),
            },
            _claim: claim,
            keyring,
            sweeper,
            children: Children::new(),
            ledger: Ledger::default(),
            screen: Screen::new(std::io::stdout(), Style::of_stdout()),
            began: Clock::new().now(),
            clock: Clock::new(),
            report: Report::new(&options),
            accidents: Vec::new(),
            history: History::new(),
            is_hub_killed: false,
            hub_back_at: None,
            missed: Vec::new(),
        })
    }

    /// Goes from the first process to the last check.
    fn run(&mut self) -> Result<(), Failure> {
        let Self { plan, .. } = &*self;
        let text = format!(
            "seed {}: {} players and {RELAYS} relays on {}.0/24, game server in {}",
            plan.options().seed,
            plan.options().players,
            plan.block(),
            plan.city(plan.server().ip()).unwrap_or("nowhere")
        );
        self.screen.say(&text)?;
        self.show_start()?;
        self.children
            .start(Who::Hub, &Role::Hub(self.options.clone()))?;
        let matchmaker = Role::Matchmaker(self.options.clone());
        self.children.start(Who::Matchmaker, &matchmaker)?;
        self.children
            .start(Who::Players, &Role::Players(self.options.clone()))?;
        self.start_mesh()?;
        self.await_server()?;
        self.start_players()?;
        self.screen.keep();
        self.play()?;
        self.end()
    }

    /// Waits until the game server that the matchmaker starts is known to it.
    fn await_server(&mut self) -> Result<(), Failure> {
        let until = self.clock.now() + START_MAX;
        while self.ledger.leases == 0 {
            self.hear_start(until)?
                .ok_or("the game server does not register")?;
        }
        Ok(())
    }

    fn start_mesh(&mut self) -> Result<(), Failure> {
        for number in 0..RELAYS {
            let role = Role::Relay {
                number,
                run: self.options.clone(),
            };
            self.children.start(Who::Relay(number), &role)?;
        }
        let until = self.clock.now() + START_MAX;
        while self.ledger.links < LINK_ENDS {
            let links = self.ledger.links;
            self.hear_start(until)?
                .ok_or_else(|| format!("the mesh is not whole: {links} ends of links are up"))?;
        }
        Ok(())
    }

    fn start_players(&mut self) -> Result<(), Failure> {
        self.children.tell(Who::Players, &Order::Scout)?;
        let until = self.clock.now() + START_MAX;
        while self.ledger.ways.len() < usize::from(self.plan.options().players) {
            self.hear_start(until)?
                .ok_or("the players have not found their ways")?;
        }
        self.children.tell(Who::Players, &Order::Join)?;
        let until = self.clock.now() + START_MAX;
        while !self.ledger.has_started {
            let Some(()) = self.hear_start(until)? else {
                let (joined, players) = (self.ledger.joined, self.plan.options().players);
                return Err(format!("{joined} of {players} players have joined in time").into());
            };
        }
        Ok(())
    }

    /// Takes one piece of news while all is started, and shows how far that is.
    fn hear_start(&mut self, until: Instant) -> Result<Option<()>, Failure> {
        loop {
            let next = self.clock.now() + FRAME;
            let heard = self.hear(until.min(next))?;
            self.show_start()?;
            if heard.is_some() || self.clock.now() >= until {
                return Ok(heard);
            }
        }
    }

    fn show_start(&mut self) -> Result<(), Failure> {
        let progress = Progress {
            links: (self.ledger.links, LINK_ENDS),
            is_registered: self.ledger.leases > 0,
            measured: self.ledger.ways.len(),
            joined: usize::from(self.ledger.joined),
            players: usize::from(self.plan.options().players),
        };
        let at = self.clock.now().saturating_since(self.began);
        self.screen.show_start(at, &progress)?;
        Ok(())
    }

    fn play(&mut self) -> Result<(), Failure> {
        let start = self.clock.now();
        // The sweeper is no part of it.
        let all = descendants(std::process::id())?.len();
        self.report.processes = all.saturating_sub(1);
        let until = start + self.plan.length() + FINISH_MAX;
        let mut frame_at = start;
        while !self.ledger.is_complete(&self.plan) {
            let now = self.clock.now();
            if now >= until {
                break;
            }
            if self.hub_back_at.is_some_and(|at| now >= at) {
                self.hub_back_at = None;
                self.children
                    .start(Who::Hub, &Role::Hub(self.options.clone()))?;
                self.screen.say("        the hub is back")?;
            }
            let third = self.plan.length().checked_div(3).unwrap_or_default();
            let due = self.accidents.len().saturating_add(self.missed.len());
            let part = u32::try_from(due).unwrap_or(u32::MAX).saturating_add(1);
            let at = start + third.saturating_mul(part);
            // All may be aside for a moment.
            let is_time = accident::is_anyone_carried(&self.ledger) || now >= at + CARRIED_MAX;
            if due < accident::PLANNED.len() && now >= at && is_time {
                self.strike(due, now.saturating_since(start))?;
            }
            if now >= frame_at {
                frame_at = now + FRAME;
                self.screen
                    .show(now.saturating_since(start), &self.rows())?;
            }
            self.hear(frame_at.min(until))?;
        }
        Ok(())
    }

    /// Does to the network what is due: the link in use gets worse, then the relay in use dies.
    fn strike(&mut self, due: usize, at: Duration) -> Result<(), Failure> {
        let damage = self.history.damage();
        let number = u8::try_from(self.accidents.len()).unwrap_or(u8::MAX);
        let mark = Order::Mark { accident: number };
        if due == 0 {
            let target = accident::link_to_degrade(&self.plan, &self.ledger, damage);
            let Some((entry, next, accident)) = target else {
                return self.miss(due);
            };
            self.children.tell(Who::Players, &mark)?;
            let order = Order::Degrade {
                host: self.plan.relay(entry).ip(),
                remote: self.plan.relay(next).ip(),
                accident: wan::Accident::DEGRADED,
            };
            self.children.tell(Who::Relay(entry), &order)?;
            self.note(accident, at)
        } else {
            let target = accident::relay_to_kill(&self.plan, &self.ledger, damage);
            let Some((victim, accident)) = target else {
                return self.miss(due);
            };
            // First, so that the gap is not told shorter than it is.
            self.children.tell(Who::Players, &mark)?;
            self.children.kill(Who::Relay(victim))?;
            self.note(accident, at)
        }
    }

    fn note(&mut self, accident: Accident, at: Duration) -> Result<(), Failure> {
        let verb = match accident.cause {
            Cause::Degraded => "degraded by 100 ms and 10 % loss",
            Cause::Killed => "killed",
        };
        self.screen
            .say(&format!("        {} is {verb}", accident.place))?;
        self.history.push(at, accident.damage.clone());
        self.accidents.push(accident);
        self.ledger.accidents = self.ledger.accidents.saturating_add(1);
        Ok(())
    }

    /// Notes that an accident would hit nobody: a run that shows nothing is no good run.
    fn miss(&mut self, due: usize) -> Result<(), Failure> {
        let ledger = &self.ledger;
        let assigned = ledger.ways.values().flatten().count();
        let (pinged, players) = (ledger.pinged.len(), ledger.ways.len());
        let detail = format!(
            "nobody was carried: {assigned} of {players} players have an entry, \
             {pinged} heard the server through the mesh"
        );
        self.screen.say(&format!("        {detail}"))?;
        self.missed.extend(accident::undone(due, &detail).take(1));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.children.tell(Who::Players, &Order::Conclude)?;
        let until = self.clock.now() + CONCLUDE_MAX;
        while self.ledger.measured.is_none() && self.hear(until)?.is_some() {}
        let until = self.clock.now() + CONCLUDE_MAX;
        while !(self.ledger.is_all_read() && self.ledger.is_all_counted(&self.plan))
            && self.hear(until)?.is_some()
        {}
        let matchmaking = matchmaking::at_the_end(&self.plan);
        self.ledger.is_over = true;
        let mut late: Vec<Who> = Vec::new();
        // Players first: they say good-bye to a server that still listens.
        for who in [Who::Players, Who::Matchmaker] {
            if !self.children.release(who) {
                late.push(who);
            }
        }
        late.extend(self.children.release_all());
        while let Some((_, heard)) = self.children.hear(Duration::ZERO) {
            if let Heard::News(news) = heard {
                self.ledger.note(&news);
            }
        }
        check::states(&self.plan, &self.ledger, &mut self.report);
        check::seats(&self.plan, &self.ledger, &mut self.report);
        trips::all(&self.plan, &self.ledger, &mut self.report);
        trips::each(&self.plan, &self.history, &self.ledger, &mut self.report);
        check::mail(&self.ledger, &mut self.report);
        check::joins(&self.plan, &self.ledger, &mut self.report);
        check::processes(&mut self.report);
        matchmaking.judge(&self.plan, &mut self.report);
        check::counts(&self.plan, self.keyring.directory(), &mut self.report);
        let mut accidents = Vec::new();
        for (number, accident) in (0..).zip(&self.accidents) {
            let (reroute, check) = accident::judge(&self.plan, (number, accident), &self.ledger);
            self.report.reroutes.push(reroute);
            accidents.push(check);
        }
        let done = self.accidents.len().saturating_add(self.missed.len());
        let undone = accident::undone(done, "the match was over before its time came");
        self.missed.extend(undone);
        accidents.append(&mut self.missed);
        if !self.plan.options().any_map {
            self.report.checks.append(&mut accidents);
        }
        let mut found: Vec<String> = late.iter().map(|who| format!("{who} was late")).collect();
        if !self.keyring.clear() {
            found.push("the folder of the keys is left".to_owned());
        }
        if !self.sweeper.release() {
            found.push("the sweeper was late".to_owned());
        }
        let left = descendants(std::process::id())?;
        found.extend(
            left.iter()
                .map(|process| format!("process {process} is left")),
        );
        self.report.checks.push(Check {
            name: "every process ends within 2 s of its pipe, and no key is left".to_owned(),
            ok: found.is_empty(),
            detail: if found.is_empty() {
                format!("none of {} is left", self.report.processes)
            } else {
                found.join("; ")
            },
        });
        self.report.ok = self.report.checks.iter().all(|check| check.ok);
        self.screen.keep();
        Ok(())
    }

    /// Takes one piece of news; `None` where none comes until `until`.
    fn hear(&mut self, until: Instant) -> Result<Option<()>, Failure> {
        let patience = until.saturating_since(self.clock.now());
        let Some((who, heard)) = self.children.hear(patience) else {
            return Ok(None);
        };
        let news = match heard {
            Heard::News(news) => news,
            // It was killed.
            Heard::Silence if !self.children.is_running(who) => return Ok(Some(())),
            Heard::Silence => return Err(ended_early(&who)),
        };
        if self.is_server_back(who, &news) {
            return Err(ended_early(&"game server"));
        }
        self.ledger.note(&news);
        match news {
            News::Failed { reason } => return Err(self.cause_of(reason)),
            News::MailUnderWay { count } if !self.is_hub_killed => {
                self.children.kill(Who::Hub)?;
                self.is_hub_killed = true;
                self.hub_back_at = Some(self.clock.now() + HUB_AWAY);
                self.screen.say(&format!(
                    "        the hub is killed with {count} mails in flight"
                ))?;
            }
            News::MailUnderWay { .. }
            | News::MailWritten { .. }
            | News::MailRead { .. }
            | News::HubLost { .. }
            | News::Ready
            | News::Leased
            | News::Counted { .. }
            | News::Joined { .. }
            | News::Seated { .. }
            | News::Started
            | News::Status(_)
            | News::Checkpoint { .. }
            | News::Desync { .. }
            | News::Left { .. }
            | News::Gap { .. }
            | News::Way { .. }
            | News::LinkUp { .. }
            | News::Route { .. }
            | News::Measured { .. }
            | News::Closed { .. } => {}
        }
        Ok(Some(()))
    }

    /// Whether the matchmaker has started a game server in place of one that played.
    fn is_server_back(&self, who: Who, news: &News) -> bool {
        self.ledger.has_started && (who, news) == (Who::Matchmaker, &News::Ready)
    }

    /// Finds out why somebody failed for `reason`: a process that has ended is the cause of what the
    /// others say, and may be told of a little later.
    fn cause_of(&mut self, reason: String) -> Failure {
        let until = self.clock.now() + CAUSE_MAX;
        loop {
            if let Some(who) = self.children.find_ended() {
                return ended_early(&who);
            }
            let patience = until.saturating_since(self.clock.now());
            match self.children.hear(patience) {
                Some((who, Heard::News(news))) if self.is_server_back(who, &news) => {
                    return ended_early(&"game server");
                }
                Some(_) if !patience.is_zero() => {}
                _ => return reason.into(),
            }
        }
    }

    fn route(&self, player: u16) -> String {
        let is_entered = |status: &Status| status.is_entered;
        let entry = self
            .ledger
            .ways
            .get(&player)
            .copied()
            .flatten()
            .filter(|_| self.ledger.statuses.get(&player).is_some_and(is_entered));
        entry.map_or_else(
            || "direct".to_owned(),
            |entry| {
                let path = self.ledger.paths.get(&entry).map_or(&[][..], Vec::as_slice);
                accident::route(&self.plan, entry, path)
            },
        )
    }

    fn rows(&self) -> Vec<Row> {
        let row = |status: &Status| Row {
            player: status.player,
            city: self
                .plan
                .city(self.plan.player(wire::Seat(status.player)))
                .unwrap_or("?"),
            direct_us: status.direct_us,
            accelerated_us: status.accelerated_us,
            route: self.route(status.player),
            loss_per_million: status.loss_per_million,
            ticks: status.ticks,
            hash: status.hash,
        };
        self.ledger.statuses.values().map(row).collect()
    }
}

fn ended_early(who: &dyn fmt::Display) -> Failure {
    format!("{who}: ended before its time").into()
}

/// How long processes may take to be there, and players to join.
const START_MAX: Duration = Duration::from_secs(20);
/// Ends of links in the whole mesh: each relay has a link with each other one.
const LINK_ENDS: usize = RELAYS as usize * (RELAYS as usize - 1);
/// How long after its last tick the match may take to reach all players.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// How long players may take to say what they have measured.
const CONCLUDE_MAX: Duration = Duration::from_secs(5);
/// How long the hub is away.
const HUB_AWAY: Duration = Duration::from_secs(1);
/// How long an accident may wait for somebody to be hit by it.
const CARRIED_MAX: Duration = Duration::from_secs(1);
/// How long what one process says of another may come before the end of that one is told.
const CAUSE_MAX: Duration = Duration::from_millis(500);
/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(250);
