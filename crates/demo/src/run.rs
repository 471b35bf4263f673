//! The run: starts the processes, applies faults, and ends the run.

use std::fmt;
use std::io::Stdout;
use std::time::Duration;

use servicer::Clock;
use wire::Instant;

use super::check;
use super::fault::History;
use super::fault::{self, Fault};
use super::matchmaking;
use super::message::{ChildCommand, ChildEvent, Status};
use super::observations::Observations;
use super::plan::{Block, Claim, LinkFault, Plan, PlanOptions, RELAYS};
use super::process::{ChildId, ChildOutput, Children, Sweeper, descendants};
use super::report::{Cause, Check, Report};
use super::table::{Progress, Row, Screen, Style};
use crate::keyring::Keyring;
use crate::role::{Failure, Role, RunOptions};

struct Run {
    plan: Plan,
    _claim: Claim,
    options: RunOptions,
    /// Removes its folder at the end.
    keyring: Keyring,
    /// Removes the folder if this process is killed; dropped after `keyring`.
    sweeper: Sweeper,
    children: Children,
    observed: Observations,
    screen: Screen<Stdout>,
    clock: Clock,
    started_at: Instant,
    report: Report,
    /// Faults applied, in command.
    faults: Vec<Fault>,
    history: History,
    hub: HubState,
    /// Checks that could not be made, and why.
    skipped: Vec<Check>,
}

/// The hub, which is killed once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HubState {
    Up,
    Killed { restart_at: Instant },
    Restarted,
}

/// Runs the demonstration and returns its report. A run that fails early has a check with the
/// reason.
pub(super) fn run_demo(options: PlanOptions) -> Report {
    let mut run = match Run::new(options) {
        Ok(run) => run,
        Err(error) => return Report::new(&options).broken_off(&error.to_string()),
    };
    match run.run() {
        Ok(()) => run.report,
        Err(error) => run.report.broken_off(&error.to_string()),
    }
}

impl Run {
    fn new(options: PlanOptions) -> Result<Self, Failure> {
        let claim = Block::claim()
            .map_err(|error| format!("no block of loopback addresses is free: {error}"))?;
        let plan = Plan::new(options, claim.block());
        plan.check_scenario()?;
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
            observed: Observations::default(),
            screen: Screen::new(std::io::stdout(), Style::of_stdout()),
            started_at: Clock::new().now(),
            clock: Clock::new(),
            report: Report::new(&options),
            faults: Vec::new(),
            history: History::new(),
            hub: HubState::Up,
            skipped: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        let Self { plan, .. } = &*self;
        let text = format!(
            "seed {}: {} players and {RELAYS} relays on {}.0/24, game server in {}",
            plan.options().seed,
            plan.options().players,
            plan.block(),
            plan.city(plan.server().ip()).unwrap_or("nowhere")
        );
        self.screen.print(&text)?;
        self.show_start()?;
        self.children
            .start(ChildId::Hub, &Role::Hub(self.options.clone()))?;
        let matchmaker = Role::Matchmaker(self.options.clone());
        self.children.start(ChildId::Matchmaker, &matchmaker)?;
        self.children
            .start(ChildId::Players, &Role::Players(self.options.clone()))?;
        self.start_mesh()?;
        self.await_server()?;
        self.start_players()?;
        self.screen.keep();
        self.play()?;
        self.end()
    }

    /// Waits until the matchmaker knows the game server that it started.
    fn await_server(&mut self) -> Result<(), Failure> {
        let until = self.clock.now() + START_MAX;
        while self.observed.startup.leases == 0 {
            self.next_startup_output(until)?
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
            self.children.start(ChildId::Relay(number), &role)?;
        }
        let until = self.clock.now() + START_MAX;
        while self.observed.startup.links < LINK_ENDS {
            let links = self.observed.startup.links;
            self.next_startup_output(until)?
                .ok_or_else(|| format!("the mesh is not whole: {links} ends of links are up"))?;
        }
        Ok(())
    }

    fn start_players(&mut self) -> Result<(), Failure> {
        self.children
            .send(ChildId::Players, &ChildCommand::FindRoute)?;
        let until = self.clock.now() + START_MAX;
        while self.observed.routes.len() < usize::from(self.plan.options().players) {
            self.next_startup_output(until)?
                .ok_or("the players have not found their routes")?;
        }
        self.children.send(ChildId::Players, &ChildCommand::Join)?;
        let until = self.clock.now() + START_MAX;
        while !self.observed.startup.has_started {
            let Some(()) = self.next_startup_output(until)? else {
                let (joined, players) = (self.observed.startup.joined, self.plan.options().players);
                return Err(format!("{joined} of {players} players have joined in time").into());
            };
        }
        Ok(())
    }

    /// Handles one event during start-up, and shows the progress.
    fn next_startup_output(&mut self, until: Instant) -> Result<Option<()>, Failure> {
        loop {
            let next = self.clock.now() + FRAME_INTERVAL;
            let output = self.next_output(until.min(next))?;
            self.show_start()?;
            if output.is_some() || self.clock.now() >= until {
                return Ok(output);
            }
        }
    }

    fn show_start(&mut self) -> Result<(), Failure> {
        let progress = Progress {
            links: (self.observed.startup.links, LINK_ENDS),
            is_registered: self.observed.startup.leases > 0,
            measured: self.observed.routes.len(),
            joined: usize::from(self.observed.startup.joined),
            players: usize::from(self.plan.options().players),
        };
        let at = self.clock.now().saturating_since(self.started_at);
        self.screen.show_start(at, &progress)?;
        Ok(())
    }

    fn play(&mut self) -> Result<(), Failure> {
        let start = self.clock.now();
        // The sweeper does not count.
        let all = descendants(std::process::id())?.len();
        self.report.processes = all.saturating_sub(1);
        let until = start + self.plan.length() + FINISH_MAX;
        let mut frame_at = start;
        while !self.observed.is_complete(&self.plan) {
            let now = self.clock.now();
            if now >= until {
                break;
            }
            if matches!(self.hub, HubState::Killed { restart_at } if now >= restart_at) {
                self.hub = HubState::Restarted;
                self.children
                    .start(ChildId::Hub, &Role::Hub(self.options.clone()))?;
                self.screen.print("        the hub is back")?;
            }
            let third = self.plan.length().checked_div(3).unwrap_or_default();
            let due = self.faults.len().saturating_add(self.skipped.len());
            let part = u32::try_from(due).unwrap_or(u32::MAX).saturating_add(1);
            let at = start + third.saturating_mul(part);
            // For a moment all players may play directly.
            let is_time = fault::carries_any_flow(&self.observed) || now >= at + CARRIED_MAX;
            if due < fault::PLANNED.len() && now >= at && is_time {
                self.apply_fault(due, now.saturating_since(start))?;
            }
            if now >= frame_at {
                frame_at = now + FRAME_INTERVAL;
                self.screen
                    .show(now.saturating_since(start), &self.rows())?;
            }
            self.next_output(frame_at.min(until))?;
        }
        Ok(())
    }

    /// Applies the fault that is due: degrades the link in use, then kills the relay in use.
    fn apply_fault(&mut self, due: usize, at: Duration) -> Result<(), Failure> {
        let damage = self.history.damage();
        let number = u8::try_from(self.faults.len()).unwrap_or(u8::MAX);
        let mark = ChildCommand::Mark { fault: number };
        if due == 0 {
            let target = fault::link_to_degrade(&self.plan, &self.observed, damage);
            let Some((entry, next, fault)) = target else {
                return self.skip_fault(due);
            };
            self.children.send(ChildId::Players, &mark)?;
            let command = ChildCommand::Degrade {
                host: self.plan.relay(entry).ip(),
                remote: self.plan.relay(next).ip(),
                fault: LinkFault::DEGRADED,
            };
            self.children.send(ChildId::Relay(entry), &command)?;
            self.record(fault, at)
        } else {
            let target = fault::relay_to_kill(&self.plan, &self.observed, damage);
            let Some((victim, fault)) = target else {
                return self.skip_fault(due);
            };
            // Before the fault, so that the gap is not measured too short.
            self.children.send(ChildId::Players, &mark)?;
            self.children.kill(ChildId::Relay(victim))?;
            self.record(fault, at)
        }
    }

    fn record(&mut self, fault: Fault, at: Duration) -> Result<(), Failure> {
        let verb = match fault.cause {
            Cause::Degraded => "degraded by 100 ms and 10 % loss",
            Cause::Killed => "killed",
        };
        self.screen
            .print(&format!("        {} is {verb}", fault.place))?;
        self.history.push(at, fault.damage.clone());
        self.faults.push(fault);
        self.observed.faults.count = self.observed.faults.count.saturating_add(1);
        Ok(())
    }

    /// Records a fault that would hit nobody, as a failed check.
    fn skip_fault(&mut self, due: usize) -> Result<(), Failure> {
        let observed = &self.observed;
        let assigned = observed.routes.values().flatten().count();
        let (pinged, players) = (observed.startup.pinged.len(), observed.routes.len());
        let detail = format!(
            "nobody was carried: {assigned} of {players} players have an entry, \
             {pinged} reached the server through the mesh"
        );
        self.screen.print(&format!("        {detail}"))?;
        self.skipped
            .extend(fault::not_applied(due, &detail).take(1));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.children
            .send(ChildId::Players, &ChildCommand::Conclude)?;
        let until = self.clock.now() + CONCLUDE_MAX;
        while self.observed.measured.is_none() && self.next_output(until)?.is_some() {}
        let until = self.clock.now() + CONCLUDE_MAX;
        while !(self.observed.is_all_read() && self.observed.is_all_counted(&self.plan))
            && self.next_output(until)?.is_some()
        {}
        let matchmaking = matchmaking::at_the_end(&self.plan);
        self.observed.is_over = true;
        let mut late: Vec<ChildId> = Vec::new();
        // Players first, so that the server still receives their closes.
        for child in [ChildId::Players, ChildId::Matchmaker] {
            if !self.children.release(child) {
                late.push(child);
            }
        }
        late.extend(self.children.release_all());
        while let Some((_, output)) = self.children.next_output(Duration::ZERO) {
            if let ChildOutput::Event(event) = output {
                self.observed.record(&event);
            }
        }
        check::states(&self.plan, &self.observed, &mut self.report);
        check::seats(&self.plan, &self.observed, &mut self.report);
        check::round_trips(&self.plan, &self.observed, &mut self.report);
        check::player_round_trips(&self.plan, &self.history, &self.observed, &mut self.report);
        check::mail(&self.observed, &mut self.report);
        check::joins(&self.plan, &self.observed, &mut self.report);
        check::processes(&mut self.report);
        matchmaking.judge(&self.plan, &mut self.report);
        check::counts(&self.plan, self.keyring.directory(), &mut self.report);
        let mut faults = Vec::new();
        for (number, fault) in (0..).zip(&self.faults) {
            let (reroute, check) = fault::judge(&self.plan, (number, fault), &self.observed);
            self.report.reroutes.push(reroute);
            faults.push(check);
        }
        let done = self.faults.len().saturating_add(self.skipped.len());
        let not_applied = fault::not_applied(done, "the match was over before its time came");
        self.skipped.extend(not_applied);
        faults.append(&mut self.skipped);
        if !self.plan.options().any_map {
            self.report.checks.append(&mut faults);
        }
        self.check_leftovers(&late)?;
        self.report.ok = self.report.checks.iter().all(|check| check.ok);
        self.screen.keep();
        Ok(())
    }

    /// Checks that all processes ended in time, and that no key is left.
    fn check_leftovers(&mut self, late: &[ChildId]) -> Result<(), Failure> {
        let mut found: Vec<String> = late
            .iter()
            .map(|child| format!("{child} was late"))
            .collect();
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
        let processes = self.report.processes;
        let name = "every process ends within 2 s of its pipe, and no key is left";
        let good = || format!("none of {processes} is left");
        self.report.check_none(name, &found, good);
        Ok(())
    }

    /// Handles one event; `None` if none arrives before `until`.
    fn next_output(&mut self, until: Instant) -> Result<Option<()>, Failure> {
        let timeout = until.saturating_since(self.clock.now());
        let Some((child, output)) = self.children.next_output(timeout) else {
            return Ok(None);
        };
        let event = match output {
            ChildOutput::Event(event) => event,
            // It was killed by this run.
            ChildOutput::End if !self.children.is_running(child) => return Ok(Some(())),
            ChildOutput::End => return Err(ended_early(&child)),
        };
        if self.is_server_back(child, &event) {
            return Err(ended_early(&"game server"));
        }
        self.observed.record(&event);
        if let ChildEvent::Failed { reason } = event {
            return Err(self.cause_of(reason));
        }
        if let ChildEvent::MailUnderWay { count } = event
            && self.hub == HubState::Up
        {
            self.children.kill(ChildId::Hub)?;
            let restart_at = self.clock.now() + HUB_DOWNTIME;
            self.hub = HubState::Killed { restart_at };
            self.screen.print(&format!(
                "        the hub is killed with {count} mails in flight"
            ))?;
        }
        Ok(Some(()))
    }

    /// Whether the matchmaker has replaced a game server that played.
    fn is_server_back(&self, child: ChildId, event: &ChildEvent) -> bool {
        self.observed.startup.has_started
            && (child, event) == (ChildId::Matchmaker, &ChildEvent::Ready)
    }

    /// Finds the cause of a failure for `reason`: if a process has ended, that caused what others
    /// report, even if it is noticed a little later.
    fn cause_of(&mut self, reason: String) -> Failure {
        let until = self.clock.now() + CAUSE_MAX;
        loop {
            if let Some(child) = self.children.find_ended() {
                return ended_early(&child);
            }
            let timeout = until.saturating_since(self.clock.now());
            match self.children.next_output(timeout) {
                Some((child, ChildOutput::Event(event))) if self.is_server_back(child, &event) => {
                    return ended_early(&"game server");
                }
                Some(_) if !timeout.is_zero() => {}
                _ => return reason.into(),
            }
        }
    }

    fn route(&self, player: u16) -> String {
        let is_entered = |status: &Status| status.is_entered;
        let entry = self
            .observed
            .routes
            .get(&player)
            .copied()
            .flatten()
            .filter(|_| self.observed.statuses.get(&player).is_some_and(is_entered));
        entry.map_or_else(
            || "direct".to_owned(),
            |entry| {
                let path = self
                    .observed
                    .paths
                    .get(&entry)
                    .map_or(&[][..], Vec::as_slice);
                fault::route(&self.plan, entry, path)
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
        self.observed.statuses.values().map(row).collect()
    }
}

fn ended_early(child: &dyn fmt::Display) -> Failure {
    format!("{child}: ended before its time").into()
}

/// How long processes may take to start, and players to join.
const START_MAX: Duration = Duration::from_secs(20);
/// Link ends in the whole mesh: each relay has a link with each other one.
const LINK_ENDS: usize = RELAYS as usize * (RELAYS as usize - 1);
/// How long the match may take to reach all players after its last tick.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// How long players may take to report their measurements.
const CONCLUDE_MAX: Duration = Duration::from_secs(5);
const HUB_DOWNTIME: Duration = Duration::from_secs(1);
/// How long a fault may wait until it hits a player.
const CARRIED_MAX: Duration = Duration::from_secs(1);
/// How long the end of a process may be noticed after another one's report of it.
const CAUSE_MAX: Duration = Duration::from_millis(500);
const FRAME_INTERVAL: Duration = Duration::from_millis(250);
