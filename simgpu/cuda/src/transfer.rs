//! A copy between two regions: where they are, whether they are live, what they cost.

use crate::abi::{End2d, End3d, MEMORY_ARRAY, MEMORY_DEVICE, MEMORY_HOST, MEMORY_UNIFIED};
use crate::code::{Answer, Code};
use crate::gate::Host;
use crate::handle::Handle;
use crate::process::Process;
use crate::slice::Slice;
use crate::space::DEVICE_BASE;
use crate::state::State;
use crate::timeline::{Load, Work};

/// What a program named as an end of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// Memory of the program.
    Host(Host),
    /// An address that a device can reach.
    Device(u64),
    /// An address of either kind.
    Either(u64),
    /// An array.
    Array(Handle),
}

/// A box of bytes: width in bytes, rows, planes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    end: End,
    /// Offset of the first byte, row, plane.
    origin: [usize; 3],
    extent: [usize; 3],
    /// Bytes from row to row.
    pitch: usize,
    /// Rows from plane to plane.
    rows: usize,
}

impl Region {
    pub(crate) fn row(end: End, bytes: usize) -> Self {
        Self {
            end,
            origin: [0; 3],
            extent: [bytes, 1, 1],
            pitch: bytes,
            rows: 1,
        }
    }

    /// A run of bytes of a one-dimensional array, or of the first row of another.
    pub(crate) fn of_array(array: Handle, offset: usize, bytes: usize) -> Self {
        let row = Self::row(End::Array(array), bytes);
        Self {
            origin: [offset, 0, 0],
            ..row
        }
    }

    pub(crate) fn of_2d(end: End2d, extent: [usize; 3]) -> Answer<Self> {
        let found = end_of(end.memory, end.host, end.device, end.array)?;
        Self {
            end: found,
            origin: [end.x_bytes, end.y, 0],
            extent,
            pitch: end.pitch,
            rows: 0,
        }
        .checked()
    }

    pub(crate) fn of_3d(end: End3d, extent: [usize; 3]) -> Answer<Self> {
        let found = end_of(end.memory, end.host, end.device, end.array)?;
        let origin = [end.x_bytes, end.y, end.z];
        Self {
            end: found,
            origin,
            extent,
            pitch: end.pitch,
            rows: end.height,
        }
        .checked()
    }

    /// A pitch or a height of 0 means that rows or planes touch.
    fn checked(mut self) -> Answer<Self> {
        if self.pitch == 0 {
            self.pitch = self.extent[0];
        }
        if self.rows == 0 {
            self.rows = self.extent[1];
        }
        let is_array = matches!(self.end, End::Array(_));
        let row_end = self.origin[0]
            .checked_add(self.extent[0])
            .ok_or(Code::INVALID_VALUE)?;
        let fits = self.extent[1] <= 1 || row_end <= self.pitch;
        if is_array || fits {
            Ok(self)
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    fn bytes(&self) -> Answer<u64> {
        let [width, rows, planes] = self.extent;
        let bytes = width
            .checked_mul(rows)
            .and_then(|bytes| bytes.checked_mul(planes));
        bytes.map(|bytes| bytes as u64).ok_or(Code::INVALID_VALUE)
    }

    /// Offset from the start of the memory to a row of the region.
    fn offset(&self, row: usize, plane: usize) -> Option<u64> {
        let row = self.origin[2]
            .checked_add(plane)?
            .checked_mul(self.rows)?
            .checked_add(self.origin[1] + row)?;
        row.checked_mul(self.pitch)?
            .checked_add(self.origin[0])
            .map(|offset| offset as u64)
    }

    /// First byte and length of the whole span, from the first row to the last.
    fn span(&self, start: u64) -> Answer<(u64, u64)> {
        let last = self.offset(self.extent[1].saturating_sub(1), self.extent[2].saturating_sub(1));
        let first = self.offset(0, 0).ok_or(Code::INVALID_VALUE)?;
        let end = last
            .and_then(|last| last.checked_add(self.extent[0] as u64))
            .ok_or(Code::INVALID_VALUE)?;
        let address = start.checked_add(first).ok_or(Code::INVALID_VALUE)?;
        Ok((address, end - first))
    }

    /// Where it is: checks that it is live if the driver can know.
    fn locate(&self, state: &State) -> Answer<Place> {
        let (address, must_be_known) = match self.end {
            End::Host(host) if host.0.is_null() => return Err(Code::INVALID_VALUE),
            End::Host(host) => return Ok(Place::Host(host)),
            End::Array(array) => return self.locate_in_array(state, array),
            End::Device(address) => (address, true),
            End::Either(address) => (address, address >= DEVICE_BASE),
        };
        let (start, length) = self.span(address)?;
        if let Some((base, region)) = state.memory.host.find(start) {
            let fits = start
                .checked_add(length)
                .is_some_and(|end| end <= base + region.bytes as u64);
            return if fits {
                Ok(Place::Host(Host::from_address(address)))
            } else {
                Err(Code::INVALID_VALUE)
            };
        }
        match state.memory.device_of(start, length) {
            Ok(device) => Ok(Place::Device(device)),
            Err(code) if must_be_known || address == 0 => Err(code),
            Err(_) => Ok(Place::Host(Host::from_address(address))),
        }
    }

    fn locate_in_array(&self, state: &State, handle: Handle) -> Answer<Place> {
        let array = state.memory.arrays.get(&handle).ok_or(Code::INVALID_HANDLE)?;
        let whole = [
            array.width * array.element_bytes,
            array.height.max(1),
            array.depth.max(1),
        ];
        for ((&origin, &extent), whole) in self.origin.iter().zip(&self.extent).zip(whole) {
            let end = origin.checked_add(extent).ok_or(Code::INVALID_VALUE)?;
            if end > whole {
                return Err(Code::INVALID_VALUE);
            }
        }
        state
            .memory
            .find(array.address)
            .map(|(_, one)| Place::Device(one.device))
            .ok_or(Code::INVALID_HANDLE)
    }
}

fn end_of(memory: i32, host: u64, device: u64, array: u64) -> Answer<End> {
    Ok(match memory {
        MEMORY_HOST => End::Host(Host::from_address(host)),
        MEMORY_DEVICE => End::Device(device),
        MEMORY_ARRAY => End::Array(array),
        MEMORY_UNIFIED => End::Either(device),
        _ => return Err(Code::INVALID_VALUE),
    })
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Host(Host),
    Device(usize),
}

/// A copy that may go ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    to: (Region, Place),
    from: (Region, Place),
    bytes: u64,
}

impl Transfer {
    /// Checks both ends.
    pub(crate) fn plan(state: &State, to: Region, from: Region) -> Answer<Self> {
        let bytes = to.bytes()?;
        if bytes == 0 {
            // Nothing is copied, and nothing is checked: the driver takes any pointers then.
            let nowhere = Place::Host(Host::from_address(0));
            return Ok(Self {
                to: (to, nowhere),
                from: (from, nowhere),
                bytes,
            });
        }
        Ok(Self {
            to: (to, to.locate(state)?),
            from: (from, from.locate(state)?),
            bytes,
        })
    }

    pub(crate) fn is_on_host(&self) -> bool {
        matches!((self.to.1, self.from.1), (Place::Host(_), Place::Host(_)))
    }

    /// What the stream has to do for it; `None` if the hardware is not needed.
    pub(crate) fn work(&self, process: &Process) -> Option<Work<Slice>> {
        #[expect(clippy::cast_precision_loss, reason = "byte counts are far below 2^53")]
        let amount = self.bytes as f64;
        match (self.to.1, self.from.1) {
            (Place::Host(_), Place::Host(_)) => None,
            // Read once and written once.
            (Place::Device(to), Place::Device(from)) if to == from => {
                let bandwidth = process.devices.get(to)?.memory_bandwidth;
                Some(Work::Pause(2.0 * amount / bandwidth))
            }
            // Between host and device, and between devices: over the bus.
            _ => Some(Work::Run {
                load: Load::Copy,
                amount,
            }),
        }
    }

    /// Writes what arrives in the program's own memory: what it held on the host, or zeros from a device.
    pub(crate) fn move_bytes(&self) {
        let (to, Place::Host(target)) = self.to else {
            return;
        };
        if self.bytes == 0 {
            return;
        }
        let (from, origin) = self.from;
        for plane in 0..to.extent[2] {
            for row in 0..to.extent[1] {
                let Some(offset) = to.offset(row, plane) else {
                    continue;
                };
                let target = Host::from_address(target.address() + offset);
                match origin {
                    Place::Device(_) => target.fill(0, to.extent[0]),
                    Place::Host(origin) => {
                        let Some(offset) = from.offset(row, plane) else {
                            continue;
                        };
                        target.copy_from(Host::from_address(origin.address() + offset), to.extent[0]);
                    }
                }
            }
        }
    }
}
