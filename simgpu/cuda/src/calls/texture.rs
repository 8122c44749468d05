//! Texture and surface objects.

use crate::abi::{Resource, ResourceView, TextureDescription};
use crate::code::Code;
use crate::contexts::current;
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::process::Process;
use crate::textures::{ARRAY, Texture};

entries! {
    fn cuTexObjectCreate(
        texture: Out<Handle>, resource: In<Resource>, description: In<TextureDescription>,
        view: In<ResourceView>,
    ) {
        let (process, _) = current()?;
        let made = Texture {
            resource: resource.get()?,
            description: description.get()?,
            view: if view.is_null() { [0; 14] } else { view.get()? },
        };
        let mut state = process.state();
        state.check_resource(&made.resource)?;
        let handle = state.handles.next();
        texture.put(handle)?;
        state.textures.textures.insert(handle, made);
        Ok(())
    }

    fn cuTexObjectDestroy(texture: Handle) {
        let mut state = Process::get()?.state();
        state.textures.textures.remove(&texture).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuTexObjectGetResourceDesc(resource: Out<Resource>, texture: Handle) {
        let state = Process::get()?.state();
        let found = state.textures.textures.get(&texture).ok_or(Code::INVALID_VALUE)?;
        resource.put(found.resource)
    }

    fn cuTexObjectGetTextureDesc(description: Out<TextureDescription>, texture: Handle) {
        let state = Process::get()?.state();
        let found = state.textures.textures.get(&texture).ok_or(Code::INVALID_VALUE)?;
        description.put(found.description)
    }

    fn cuTexObjectGetResourceViewDesc(view: Out<ResourceView>, texture: Handle) {
        let state = Process::get()?.state();
        let found = state.textures.textures.get(&texture).ok_or(Code::INVALID_VALUE)?;
        view.put(found.view)
    }

    /// A surface shows an array.
    fn cuSurfObjectCreate(surface: Out<Handle>, resource: In<Resource>) {
        let (process, _) = current()?;
        let resource = resource.get()?;
        let mut state = process.state();
        if resource.kind != ARRAY {
            return Err(Code::INVALID_VALUE);
        }
        state.check_resource(&resource)?;
        let handle = state.handles.next();
        surface.put(handle)?;
        state.textures.surfaces.insert(handle, resource);
        Ok(())
    }

    fn cuSurfObjectDestroy(surface: Handle) {
        let mut state = Process::get()?.state();
        state.textures.surfaces.remove(&surface).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuSurfObjectGetResourceDesc(resource: Out<Resource>, surface: Handle) {
        let state = Process::get()?.state();
        let found = state.textures.surfaces.get(&surface).ok_or(Code::INVALID_VALUE)?;
        resource.put(*found)
    }
}
