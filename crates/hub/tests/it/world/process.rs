//! The hub's process: its start, its disk and its end.

use std::time::Duration;

use hub::log::MemorySegments;
use hub::stats_store::{StatsStore, StatsStoreConfig};
use hub::{Command, Hub, HubEvent, LogId, Store};
use wire::{CommandId, Generator, StreamMachine};

use super::{Action, End, World, join_file};

pub(crate) struct HubProcess {
    pub(crate) machine: Hub,
    pub(crate) store: Store<MemorySegments>,
    pub(crate) stats_store: StatsStore<MemorySegments>,
    commands: Vec<(CommandId, Command)>,
    store_runs: bool,
    /// The number of this start of the hub.
    pub(super) start: u64,
}

/// Whether the machine loses power when the process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    Stays,
    Cut,
}

impl Power {
    pub(crate) fn draw(generator: &mut Generator) -> Self {
        if generator.chance(500_000) {
            Self::Cut
        } else {
            Self::Stays
        }
    }
}

impl World {
    pub(crate) fn start_hub(&mut self) {
        let disk = self.disk.take().expect("the hub is down");
        self.hub_starts += 1;
        let log = LogId(self.generator.next_u64());
        let store = match Store::open(disk, self.store_config, log) {
            Ok(store) => store,
            Err(mut failure) => {
                // It crashed during recovery, and continues from there.
                failure.files.power_cut(&mut self.generator);
                self.disk = Some(failure.files);
                self.after(Duration::from_millis(50), Action::HubUp);
                return;
            }
        };
        let Some(stats_store) = self.open_stats() else {
            self.disk = Some(store.into_files());
            self.after(Duration::from_millis(50), Action::HubUp);
            return;
        };
        let file = join_file(self.nodes.len());
        let mut machine = Hub::new(self.hub_config.clone(), file, self.now);
        machine.set_unix_time(self.now, self.unix());
        self.hub = Some(HubProcess {
            machine,
            store,
            stats_store,
            commands: Vec::new(),
            store_runs: false,
            start: self.hub_starts,
        });
        self.drain_hub();
    }

    fn open_stats(&mut self) -> Option<StatsStore<MemorySegments>> {
        let disk = self.stats_disk.take().expect("the hub is down");
        let mut config = StatsStoreConfig::default();
        config.segment_bytes = 0;
        config.checkpoint_bytes = 2_000;
        match StatsStore::open(disk, config) {
            Ok(store) => Some(store),
            Err(mut failure) => {
                failure.files.power_cut(&mut self.generator);
                self.stats_disk = Some(failure.files);
                None
            }
        }
    }

    /// Ends the hub's process, with or without a power cut, and restarts it after `down`.
    pub(crate) fn crash_hub(&mut self, power: Power, down: Duration) {
        let Some(process) = self.hub.take() else {
            return;
        };
        let mut disk = process.store.into_files();
        let mut stats_disk = process.stats_store.into_files();
        for disk in [&mut disk, &mut stats_disk] {
            if power == Power::Cut {
                disk.power_cut(&mut self.generator);
            } else {
                disk.kill();
            }
        }
        self.disk = Some(disk);
        self.stats_disk = Some(stats_disk);
        let open: Vec<_> = self.streams.keys().copied().collect();
        for id in open {
            self.break_stream(id);
        }
        self.after(down, Action::HubUp);
    }

    /// Replaces the hub's machine by one with an empty disk.
    pub(crate) fn replace_disk(&mut self) {
        self.crash_hub(Power::Stays, Duration::from_millis(500));
        self.disk = Some(MemorySegments::new(1 << 30));
    }

    pub(super) fn run_store(&mut self, start: u64) {
        let Some(hub) = self.hub.as_mut().filter(|hub| hub.start == start) else {
            return;
        };
        hub.store_runs = false;
        let commands = std::mem::take(&mut hub.commands);
        let mut outcomes = Vec::new();
        let (stats_ops, commands): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .partition(|(_, command)| matches!(command, Command::Stats(_)));
        hub.store.execute(commands, &mut outcomes);
        while hub.store.tidy() {}
        let stats_ops = stats_ops
            .into_iter()
            .filter_map(|(id, command)| match command {
                Command::Stats(op) => Some((id, op)),
                _ => None,
            });
        hub.stats_store.execute(stats_ops, &mut outcomes);
        while hub.stats_store.keep_up() {}
        if hub.store.files_mut().is_stopped() || hub.stats_store.files_mut().is_stopped() {
            // The process crashed during the operation.
            let power = Power::draw(&mut self.generator);
            self.crash_hub(power, Duration::from_millis(200));
            return;
        }
        for (id, outcome) in outcomes {
            let delay = Duration::from_micros(self.generator.below(2_000));
            self.after(delay, Action::Completed(start, id, outcome));
        }
    }

    pub(super) fn drain_hub(&mut self) {
        let Some(mut hub) = self.hub.take() else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(outbound) = hub.machine.poll_outbound(self.now, &mut buf) {
            let record = std::mem::take(&mut buf);
            self.transmit(outbound, End::Node, record);
        }
        while let Some(command) = hub.machine.poll_command() {
            hub.commands.push(command);
        }
        if !hub.commands.is_empty() && !hub.store_runs {
            hub.store_runs = true;
            let delay = Duration::from_micros(self.generator.below(3_000));
            self.after(delay, Action::StoreRun(hub.start));
        }
        let mut is_failed = false;
        while let Some(event) = hub.machine.poll_event() {
            is_failed |= event == HubEvent::StoreFailed
                || event == HubEvent::StatsFailed && !self.keep_failed_stats;
            self.hub_events.push(event);
        }
        self.hub = Some(hub);
        if is_failed {
            self.crash_hub(Power::Stays, Duration::from_millis(300));
        }
    }
}
