//! Texture and surface objects: views of memory that exists, which cost nothing.

use std::collections::BTreeMap;

use crate::abi::{Resource, ResourceView, TextureDescription};
use crate::code::{Answer, Code};
use crate::handle::Handle;
use crate::state::State;

/// A texture object as it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texture {
    pub(crate) resource: Resource,
    pub(crate) description: TextureDescription,
    pub(crate) view: ResourceView,
}

/// The objects of this process.
#[derive(Debug, Default)]
pub(crate) struct Textures {
    pub(crate) textures: BTreeMap<Handle, Texture>,
    pub(crate) surfaces: BTreeMap<Handle, Resource>,
}

/// `CU_RESOURCE_TYPE_ARRAY`
pub(crate) const ARRAY: i32 = 0;
/// `CU_RESOURCE_TYPE_MIPMAPPED_ARRAY`
const MIPMAPPED_ARRAY: i32 = 1;
/// `CU_RESOURCE_TYPE_LINEAR`
const LINEAR: i32 = 2;
/// `CU_RESOURCE_TYPE_PITCH2D`
const PITCHED: i32 = 3;

impl State {
    /// Whether what a resource shows is there: an array, or enough memory behind an address.
    pub(crate) fn check_resource(&self, resource: &Resource) -> Answer {
        let [first, _, third, fourth, fifth, ..] = resource.words;
        if resource.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match resource.kind {
            ARRAY if self.memory.arrays.contains_key(&first) => Ok(()),
            MIPMAPPED_ARRAY if self.memory.mipmaps.contains_key(&first) => Ok(()),
            ARRAY | MIPMAPPED_ARRAY => Err(Code::INVALID_HANDLE),
            // Address, format and channels, bytes.
            LINEAR => self.memory.device_of(first, third).map(drop),
            // Address, format and channels, width, height, bytes from row to row.
            PITCHED if third > 0 && fourth > 0 => {
                let bytes = fourth.checked_mul(fifth).ok_or(Code::INVALID_VALUE)?;
                self.memory.device_of(first, bytes).map(drop)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
