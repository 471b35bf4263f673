//! Figures of one series in one bucket of time.

use wire::{ClientId, Reader, UnixTime, Writer};

use super::batch::{BatchError, VERSION, decode_float, decode_text, encode_text};
use super::number::{Finite, Number, float_of_i128};
use super::query::{Aggregate, Cell, Quantile};
use super::record::{Sample, StatText};
use super::sketch::{Sketch, SketchSum};
use super::uniques::{Uniques, UniquesSum};
use super::varint;

/// What is known of a series in one bucket. Memory is fixed but for the sketch and the players.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Records.
    count: u64,
    /// Sum of the integers.
    int_sum: i128,
    /// Sum of the floats; it is rounded in the order of the log.
    float_sum: Float,
    /// Smallest and largest number.
    range: Option<(Finite, Finite)>,
    /// The newest value; of several at one time, the last in the log.
    last: Option<(UnixTime, Last)>,
    /// Values of gauges and events.
    sketch: Option<Box<Sketch>>,
    players: Option<Box<Uniques>>,
}

/// Time, player and value of a record.
pub(super) type Measured<'a> = (UnixTime, Option<ClientId>, &'a Sample);

/// From how many samples on they are sorted before they are added, which is faster.
const PARTS_MIN: usize = 8;

/// Returns the value that a sketch takes.
fn sketched((_, _, sample): &Measured<'_>) -> Option<f64> {
    match sample {
        Sample::Set(number) | Sample::Event(number) => Some(number.to_f64()),
        Sample::Add(_) | Sample::State(_) => None,
    }
}

/// A float that compares by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Float(u64);

impl Float {
    const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    fn add(&mut self, value: f64) {
        // Adding zero turns a negative zero into a positive one.
        let sum = self.get() + value + 0.0;
        // A sum that overflows stays at the largest float, so that it can be encoded.
        self.0 = sum.clamp(f64::MIN, f64::MAX).to_bits();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Last {
    Number(Number),
    State(StatText),
}

const HAS_RANGE: u8 = 1;
const HAS_LAST: u8 = 2;
const HAS_SKETCH: u8 = 4;
const HAS_PLAYERS: u8 = 8;

const INT: u8 = 0;
const FLOAT: u8 = 1;
const STATE: u8 = 2;

impl Figures {
    /// Adds samples, and takes the memory that they need from `room`. Returns how many values and
    /// players did not fit into the sketch and the set of players; the other figures are complete.
    pub(super) fn add(&mut self, samples: &[Measured<'_>], room: &mut usize) -> usize {
        for (time, _, sample) in samples {
            self.add_plain(*time, sample);
        }
        if samples.len() >= PARTS_MIN {
            let sketch = Sketch::of(samples.iter().filter_map(sketched));
            let players = samples.iter().filter_map(|(_, player, _)| *player);
            let players = Uniques::of(players);
            let growth = sketch.memory_bytes().saturating_add(players.memory_bytes());
            // A set of players that becomes dense grows by more.
            let growth = growth.saturating_add(2 * BOX_BYTES + Uniques::BYTES_MAX);
            if growth <= *room {
                let before = self.memory_bytes();
                if sketch.total() > 0 {
                    self.sketch.get_or_insert_default().merge(&sketch);
                }
                if players.memory_bytes() > 0 {
                    self.players.get_or_insert_default().merge(&players);
                }
                *room = room.saturating_add(before);
                *room = room.saturating_sub(self.memory_bytes());
                return 0;
            }
        }
        let mut left_out = 0_usize;
        for sample in samples {
            let mut fits = sketched(sample).is_none_or(|value| {
                grow(&mut self.sketch, room, |sketch, room| {
                    sketch.add(value, room)
                })
            });
            fits &= sample.1.is_none_or(|player| {
                grow(&mut self.players, room, |players, room| {
                    players.add(player, room)
                })
            });
            left_out = left_out.saturating_add(usize::from(!fits));
        }
        left_out
    }

    /// Adds a sample to everything but the sketch and the players.
    fn add_plain(&mut self, time: UnixTime, sample: &Sample) {
        self.count = self.count.saturating_add(1);
        if self.last.as_ref().is_none_or(|(newest, _)| *newest <= time) {
            let last = match sample {
                Sample::State(text) => Last::State(text.clone()),
                Sample::Add(number) | Sample::Set(number) | Sample::Event(number) => {
                    Last::Number(*number)
                }
            };
            self.last = Some((time, last));
        }
        match sample.number() {
            Some(Number::Int(value)) => {
                self.int_sum = self.int_sum.saturating_add(value.into());
            }
            Some(Number::Float(value)) => self.float_sum.add(value.get()),
            None => {}
        }
        let value = sample.number().map(Number::to_f64).and_then(Finite::new);
        if let Some(value) = value {
            self.widen((value, value));
        }
    }

    fn widen(&mut self, (min, max): (Finite, Finite)) {
        let range = self.range.get_or_insert((min, max));
        if min.get() < range.0.get() {
            range.0 = min;
        }
        if max.get() > range.1.get() {
            range.1 = max;
        }
    }

    /// Adds the figures of another series, or of a later bucket, without sketch and players.
    fn merge_plain(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.int_sum = self.int_sum.saturating_add(other.int_sum);
        self.float_sum.add(other.float_sum.get());
        if let Some(range) = other.range {
            self.widen(range);
        }
        if let Some((time, last)) = &other.last
            && self.last.as_ref().is_none_or(|(newest, _)| newest <= time)
        {
            self.last = Some((*time, last.clone()));
        }
    }

    pub(super) fn cell(&self, aggregate: Aggregate) -> Cell {
        let number = match aggregate {
            Aggregate::Count => Some(float_of_i128(self.count.into())),
            Aggregate::Sum => self.range.map(|_| self.sum()),
            Aggregate::Min => self.range.map(|(min, _)| min.get()),
            Aggregate::Max => self.range.map(|(_, max)| max.get()),
            Aggregate::Mean => {
                let count = float_of_i128(self.count.into());
                self.range.map(|_| self.sum() / count)
            }
            Aggregate::Last => {
                return match &self.last {
                    Some((_, Last::Number(number))) => Cell::Number(number.to_f64()),
                    Some((_, Last::State(text))) => Cell::Text(text.clone()),
                    None => Cell::Empty,
                };
            }
            Aggregate::Quantile(quantile) => self.quantile(quantile),
            Aggregate::Uniques => {
                let players = self.players.as_ref();
                Some(players.map_or(0.0, |players| players.estimate()))
            }
        };
        number.map_or(Cell::Empty, Cell::Number)
    }

    fn sum(&self) -> f64 {
        float_of_i128(self.int_sum) + self.float_sum.get()
    }

    fn quantile(&self, quantile: Quantile) -> Option<f64> {
        let sketch = self.sketch.as_ref()?;
        self.quantile_of(quantile, sketch.total(), |rank| sketch.at_rank(rank))
    }

    /// Returns a quantile of `total` values within the range of these figures.
    fn quantile_of(
        &self,
        quantile: Quantile,
        total: u64,
        at_rank: impl FnOnce(u64) -> Option<f64>,
    ) -> Option<f64> {
        let (min, max) = self.range.map(|(min, max)| (min.get(), max.get()))?;
        let rank = quantile.rank(total)?;
        if rank == 0 {
            return Some(min);
        }
        if rank.saturating_add(1) == total {
            return Some(max);
        }
        // A row of a damaged store may have a range that its values exceed.
        at_rank(rank).map(|value| value.clamp(min, max))
    }

    /// Returns whether there is a sketch or a set of players.
    pub(super) const fn has_sketch(&self) -> bool {
        self.sketch.is_some() || self.players.is_some()
    }

    /// Memory on the heap, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let sketch = self.sketch.as_ref();
        let sketch = sketch.map_or(0, |it| it.memory_bytes().saturating_add(BOX_BYTES));
        let players = self.players.as_ref();
        let players = players.map_or(0, |it| it.memory_bytes().saturating_add(BOX_BYTES));
        sketch.saturating_add(players)
    }

    /// Encoding: `version 1, flags 1, count, sum of integers (high signed, low), sum of floats 8,
    /// [min 8, max 8], [time, form 1, value], [sketch], [players]`.
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let flags = [
            (self.range.is_some(), HAS_RANGE),
            (self.last.is_some(), HAS_LAST),
            (self.sketch.is_some(), HAS_SKETCH),
            (self.players.is_some(), HAS_PLAYERS),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        out.u8(VERSION);
        out.u8(flags.fold(0, |all, (_, flag)| all | flag));
        varint::write(self.count, out);
        varint::write_signed(i64::try_from(self.int_sum >> 64).unwrap_or(0), out);
        let low = u64::try_from(self.int_sum & i128::from(u64::MAX)).unwrap_or(0);
        varint::write(low, out);
        out.u64(self.float_sum.0);
        if let Some((min, max)) = self.range {
            out.u64(min.get().to_bits());
            out.u64(max.get().to_bits());
        }
        if let Some((time, last)) = &self.last {
            varint::write(time.as_millis(), out);
            match last {
                Last::Number(Number::Int(value)) => {
                    out.u8(INT);
                    varint::write_signed(*value, out);
                }
                Last::Number(Number::Float(value)) => {
                    out.u8(FLOAT);
                    out.u64(value.get().to_bits());
                }
                Last::State(text) => {
                    out.u8(STATE);
                    encode_text(text, out);
                }
            }
        }
        if let Some(sketch) = &self.sketch {
            sketch.encode(out);
        }
        if let Some(players) = &self.players {
            players.encode(out);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            VERSION => {}
            version => return Err(BatchError::Version(version)),
        }
        let flags = reader.u8()?;
        if flags & !(HAS_RANGE | HAS_LAST | HAS_SKETCH | HAS_PLAYERS) != 0 {
            return Err(BatchError::Head(flags));
        }
        let has = |flag| (flags & flag != 0).then_some(());
        let reader = &mut reader;
        let count = varint::read(reader)?;
        let high = i128::from(varint::read_signed(reader)?) << 64;
        let int_sum = high | i128::from(varint::read(reader)?);
        let float_sum = Float(read_float(reader)?.get().to_bits());
        let range = has(HAS_RANGE).map(|()| read_range(reader)).transpose()?;
        let last = has(HAS_LAST).map(|()| read_last(reader)).transpose()?;
        let sketch = has(HAS_SKETCH).map(|()| Sketch::decode(reader));
        let sketch = sketch.transpose()?.map(Box::new);
        let players = has(HAS_PLAYERS).map(|()| Uniques::decode(reader));
        let players = players.transpose()?.map(Box::new);
        reader.finish(BatchError::Trailing)?;
        Ok(Self {
            count,
            int_sum,
            float_sum,
            range,
            last,
            sketch,
            players,
        })
    }
}

/// Figures of several buckets, for the rows of one query. Its memory is kept from row to row.
#[derive(Debug, Default)]
pub(super) struct FiguresSum {
    plain: Figures,
    sketch: SketchSum,
    players: UniquesSum,
}

impl FiguresSum {
    /// Replaces the sum by that of `parts`, in this order, with what `columns` need.
    pub(super) fn set(&mut self, parts: &[&Figures], columns: &[Aggregate]) {
        self.plain = Figures::default();
        for part in parts {
            self.plain.merge_plain(part);
        }
        let needs_sketch = |it: &Aggregate| matches!(it, Aggregate::Quantile(_));
        if columns.iter().any(needs_sketch) {
            let sketches = parts.iter().filter_map(|part| part.sketch.as_deref());
            self.sketch.set(sketches);
        }
        if columns.contains(&Aggregate::Uniques) {
            let players = parts.iter().filter_map(|part| part.players.as_deref());
            self.players.set(players);
        }
    }

    pub(super) fn cell(&self, aggregate: Aggregate) -> Cell {
        let number = match aggregate {
            Aggregate::Quantile(quantile) => {
                let total = self.sketch.total();
                let at_rank = |rank| self.sketch.at_rank(rank);
                self.plain.quantile_of(quantile, total, at_rank)
            }
            Aggregate::Uniques => Some(self.players.estimate()),
            Aggregate::Count
            | Aggregate::Sum
            | Aggregate::Min
            | Aggregate::Max
            | Aggregate::Mean
            | Aggregate::Last => return self.plain.cell(aggregate),
        };
        number.map_or(Cell::Empty, Cell::Number)
    }
}

/// Memory of an allocated sketch or set of players without its contents, bytes.
const BOX_BYTES: usize = 64;

/// Applies `add` to a part that is created on first use, if there is room.
fn grow<T: Default>(
    part: &mut Option<Box<T>>,
    room: &mut usize,
    add: impl FnOnce(&mut T, &mut usize) -> bool,
) -> bool {
    if part.is_none() {
        let Some(left) = room.checked_sub(BOX_BYTES) else {
            return false;
        };
        *room = left;
    }
    add(part.get_or_insert_default(), room)
}

fn read_float(reader: &mut Reader<'_>) -> Result<Finite, BatchError> {
    decode_float(f64::from_bits(reader.u64()?))
}

fn read_range(reader: &mut Reader<'_>) -> Result<(Finite, Finite), BatchError> {
    let (min, max) = (read_float(reader)?, read_float(reader)?);
    if min.get() > max.get() {
        return Err(BatchError::Number);
    }
    Ok((min, max))
}

fn read_last(reader: &mut Reader<'_>) -> Result<(UnixTime, Last), BatchError> {
    let time = UnixTime::from_millis(varint::read(reader)?);
    let last = match reader.u8()? {
        INT => Last::Number(Number::Int(varint::read_signed(reader)?)),
        FLOAT => Last::Number(Number::Float(read_float(reader)?)),
        STATE => Last::State(decode_text(reader)?),
        form => return Err(BatchError::Head(form)),
    };
    Ok((time, last))
}
