use proptest::prelude::*;

use super::*;

const PAD: Width = Width::bits::<16>();

/// The whole datagram of `inputs`, the first coded against the one before it.
fn datagram(inputs: &[u16]) -> Vec<u8> {
    let bytes: Vec<_> = inputs.iter().map(|input| input.to_be_bytes()).collect();
    let head = ReportHead {
        next_low: 1_000,
        ahead: 2,
        ..ReportHead::default()
    };
    let mut out = Vec::new();
    let inputs = bytes.iter().map(<[u8; 2]>::as_slice);
    write_report(&mut out, &head, PAD, &[0, 0], inputs);
    out
}

fn unpacked(datagram: &[u8]) -> Vec<u16> {
    let Ok(Up::Report(report)) = decode_up(datagram, PAD) else {
        panic!("no report");
    };
    let mut inputs = Vec::new();
    let mut input = [0, 0];
    report.inputs.unwrap().unpack(&mut input, |_, bits| {
        inputs.push(u16::from_be_bytes([bits[0], bits[1]]));
    });
    inputs
}

fn changing_every(ticks: u64, every: u64) -> Vec<u16> {
    let mut generator = wire::Seed::from_number(4).generator(0);
    let mut input = 0;
    let mut inputs = Vec::new();
    for tick in 0..ticks {
        if tick % every == 0 {
            let old = input;
            while input == old {
                input = u16::try_from(generator.below(65_536)).unwrap();
            }
        }
        inputs.push(input);
    }
    inputs
}

proptest! {
    /// Reports cut to fit are never too long, and omit little that would have fitted.
    #[test]
    fn a_cut_report_fits_and_wastes_little(
        bits in 1_u16..=2_048,
        len_max in 400_usize..1_200,
        // How often an input changes, and how often a byte of it.
        (change, thickness) in (0_u64..=8, 1_u64..=8),
        (count, number) in (1_usize..=64, any::<u64>()),
        (lag, ahead, back) in any::<(u32, u32, u32)>(),
    ) {
        let width = Width::new(bits).unwrap();
        let spare = width.byte_len() * 8 - usize::from(bits);
        let mut generator = wire::Seed::from_number(number).generator(0);
        let neutral = vec![0; width.byte_len()];
        let mut input = neutral.clone();
        let mut inputs = Vec::new();
        for _ in 0..count {
            if generator.below(8) < change {
                for byte in &mut input {
                    if generator.below(8) < thickness {
                        *byte = u8::try_from(generator.below(256)).unwrap();
                    }
                }
                *input.last_mut().unwrap() &= u8::MAX << spare;
            }
            inputs.push(input.clone());
        }
        let head = ReportHead {
            loaded: Some(1),
            lag,
            ahead,
            hashes: HashSlice { back, count: 16, values: [u32::MAX; 16] },
            is_fresh: true,
            ..ReportHead::default()
        };
        let report = |kept: usize| {
            let mut out = Vec::new();
            let inputs = inputs[count - kept..].iter().map(Vec::as_slice);
            write_report(&mut out, &head, width, &neutral, inputs);
            out
        };
        let all = inputs.iter().map(Vec::as_slice);
        let kept = fitting_inputs(len_max, width, &neutral, all);
        prop_assert!((1..=count).contains(&kept));
        let datagram = report(kept);
        prop_assert!(datagram.len() <= len_max, "{} of {}", datagram.len(), len_max);
        prop_assert!(decode_up(&datagram, width).is_ok());
        if kept < count {
            // The header counts as its longest, each unchanged input as two bits.
            let slack = REPORT_HEAD_LEN_MAX + 16;
            prop_assert!(report(kept + 1).len() + slack > len_max);
        }
    }

    #[test]
    fn changes_have_the_announced_length(bits in 2_u16..300, number: u64) {
        let width = Width::new(bits).unwrap();
        let spare = width.byte_len() * 8 - usize::from(bits);
        let mut generator = wire::Seed::from_number(number).generator(0);
        let before = vec![0; width.byte_len()];
        let mut after = before.clone();
        for byte in &mut after {
            if generator.below(4) == 0 {
                *byte = u8::try_from(generator.below(256)).unwrap();
            }
        }
        *after.last_mut().unwrap() &= u8::MAX << spare;
        prop_assume!(after != before);
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        delta::write(&mut writer, width, &before, &after);
        writer.bit(true);
        let mut reader = BitReader::new(&out);
        delta::check(&mut reader, width).unwrap();
        let len = out.len() * 8 - reader.len();
        prop_assert_eq!(u32::try_from(len).unwrap(), delta::len(width, &before, &after));
    }
}

#[test]
fn l4_ten_ticks_of_16_buttons_changing_every_5_are_at_most_12_bytes() {
    // The whole datagram; the replaced system took 25 for the inputs and 12 around them.
    let inputs = changing_every(10, 5);
    let datagram = datagram(&inputs);
    assert!(datagram.len() <= 12, "{}", datagram.len());
    assert_eq!(unpacked(&datagram), inputs);
}

#[test]
fn l4_every_measured_case_is_at_most_the_replaced_systems() {
    for (ticks, every, theirs) in [(10, 5, 25), (60, 5, 49), (60, 1, 145)] {
        let inputs = changing_every(ticks, every);
        let datagram = datagram(&inputs);
        assert!(
            datagram.len() <= theirs,
            "{ticks} {every}: {}",
            datagram.len()
        );
        assert_eq!(unpacked(&datagram), inputs);
    }
    let inputs = changing_every(64, 64);
    assert_eq!(datagram(&inputs).len(), 10, "64 ticks of one held input");
    assert_eq!(unpacked(&datagram(&inputs)), inputs);
}

#[test]
fn l8_no_report_unpacks_to_more_than_64_inputs() {
    // Count 65, and then a run of that length.
    let mut out = vec![REPORT];
    let mut writer = BitWriter::new(&mut out);
    writer.bits(0, 17);
    writer.gamma(0);
    writer.gamma(0);
    writer.gamma(INPUTS_MAX + 1);
    writer.gamma(0);
    writer.bit(true);
    writer.gamma(INPUTS_MAX + 1);
    assert_eq!(decode_up(&out, PAD), Err(DecodeError::Malformed));
    // A run past the count.
    let mut out = vec![REPORT];
    let mut writer = BitWriter::new(&mut out);
    writer.bits(0, 17);
    writer.gamma(0);
    writer.gamma(0);
    writer.gamma(3);
    writer.gamma(0);
    writer.bit(true);
    writer.gamma(4);
    assert_eq!(decode_up(&out, PAD), Err(DecodeError::Malformed));
    // Count 17 of hashes.
    let mut out = vec![REPORT];
    let mut writer = BitWriter::new(&mut out);
    writer.bits(0, 17);
    writer.gamma(0);
    writer.gamma(HASHES_MAX + 1);
    out.resize(200, 0xff);
    assert_eq!(decode_up(&out, PAD), Err(DecodeError::Malformed));
}
