//! Rows that are worked on where they lie.

use std::sync::Mutex;

use super::CpuBackend;
use crate::graph::{Backend, BufferId, HostRows, Place};
use crate::lanes::Machine;

/// Five rows of three values, four apart, from the second value on: `10 * row + column`.
fn rows(threads: usize) -> (CpuBackend, Place) {
    let mut cpu = CpuBackend::with_machine(Machine::scalar(), threads).unwrap();
    let buffer = cpu.alloc(4 * 20, "test").unwrap();
    for row in 0..5 {
        for col in 0..3 {
            let value = (10 * row + col) as f32;
            let at = 4 * (1 + 4 * row + col);
            cpu.write(buffer, at, &value.to_ne_bytes()).unwrap();
        }
    }
    let (offset, stride) = (1, 4);
    let place = Place {
        buffer,
        offset,
        stride,
    };
    (cpu, place)
}

#[test]
fn each_part_has_its_rows_once_and_changes_them() {
    for threads in [1, 2, 5] {
        let (mut cpu, place) = rows(threads);
        let seen = Mutex::new(Vec::new());
        let work = |part: usize, mut rows: HostRows<'_>| {
            let n = [2, 0, 1, 2][part];
            let mut values = Vec::new();
            for k in 0..n {
                let row = rows.row(k).unwrap();
                values.extend_from_slice(row);
                row[1] = -1.0;
            }
            assert!(rows.row(n).is_none(), "part {part} ends");
            seen.lock().unwrap().push((part, values));
        };
        assert!(cpu.host_rows(place, 3, &[2, 0, 1, 2], &work).unwrap());
        let mut seen = seen.into_inner().unwrap();
        seen.sort_by_key(|s| s.0);
        let row = |r: f32| [r, r + 1.0, r + 2.0];
        let want = [
            (0, [row(0.0), row(10.0)].concat()),
            (1, vec![]),
            (2, row(20.0).to_vec()),
            (3, [row(30.0), row(40.0)].concat()),
        ];
        assert_eq!(seen, want, "{threads} threads");
        let mut after = [0.0; 3];
        cpu.read_f32(place.buffer, 1 + 4 * 4, &mut after).unwrap();
        assert_eq!(after, [40.0, -1.0, 42.0]);
    }
}

fn never(_: usize, _: HostRows<'_>) {
    panic!("nobody may look");
}

#[test]
fn what_is_not_there_is_not_worked_on_and_a_panic_is_an_error() {
    let (mut cpu, place) = rows(2);
    assert!(!cpu.host_rows(place, 3, &[3, 3], &never).unwrap());
    let buffer = BufferId(7);
    assert!(
        !cpu.host_rows(Place { buffer, ..place }, 3, &[1], &never)
            .unwrap()
    );
    let failed = cpu.host_rows(place, 3, &[1, 1], &never);
    assert!(failed.unwrap_err().to_string().contains("nobody may look"));
    let fine = |_: usize, mut rows: HostRows<'_>| assert_eq!(rows.row(0).unwrap().len(), 3);
    assert!(
        cpu.host_rows(place, 3, &[1, 1], &fine).unwrap(),
        "it goes on"
    );
}
